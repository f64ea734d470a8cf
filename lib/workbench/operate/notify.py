"""Notifications: one when a signal of a flow changes its level, and one when it recovers."""

from __future__ import annotations

import smtplib
import ssl
import threading
import time
from email.message import EmailMessage
from typing import Any, BinaryIO, Sequence

import requests
from pydantic import FiniteFloat, TypeAdapter, ValidationError

from ..base import ParamsError, StackError, WorkbenchError, World, aws, first_line, http, paths
from .problems import LEVELS, SIGNALS, Observation

TIMEOUT_S = 10.0  # of one read or write
DEADLINE_S = 15.0  # of one message: an answer may arrive byte by byte
MAX_ANSWER_BYTES = 1 << 16
PAUSE_S = 60.0  # at least, between two notifications of one signal
# {channel: the keys in section `watch` that it needs}
CHANNELS = {
    "webhook": ("webhook",),
    "sns": ("sns_topic",),
    "mail": ("mail_to", "mail_server"),
}
# {signal: (its level in the last message, when that was sent)}
SENT = TypeAdapter(dict[str, tuple[str, FiniteFloat]])


class Notifier:
    """Sends what changed since the last report, which may be that of an earlier process."""

    def __init__(self, world: World, channels: Sequence[str]):
        """Check the channels.

        Args:
            world: the world, whose section `watch` has the addresses.
            channels: names of CHANNELS.

        Raises:
            ParamsError: a channel has no address.
        """
        for channel in channels:
            for key in CHANNELS[channel]:
                if not getattr(world.watch, key):
                    raise ParamsError(
                        f"the channel {channel} has no address",
                        location=f"{world.file}: watch.{key}",
                        expected="an address, such as in docs/operations.md",
                    )
        self.world, self.channels = world, channels
        self._file = paths.state_dir() / "watch" / f"{world.name}.sent.json"
        self._running: dict[str, threading.Thread] = {}

    def report(self, observed: Sequence[Observation]) -> list[str]:
        """Send one message with all changes, if there are any, and return the changes.

        A signal that changes again within PAUSE_S is reported later, with its level then.

        Raises:
            StackError: a message was not accepted, or what was sent cannot be stored; the next report
                repeats the message on all channels.
        """
        sent, changes = self._load()
        now = time.time()
        for signal, (level, text) in _signals(observed).items():
            before, since = sent.get(signal, ("", 0.0))
            if level != before and abs(now - since) >= PAUSE_S:  # a clock may be set back
                changes.append(f"{level or 'recovered'}: {signal}{text}")
                sent[signal] = (level, now)
        for channel in self.channels if changes else ():
            self._send(channel, "\n".join(changes))
        try:
            paths.write_private_file(self._file, SENT.dump_json(sent))
        except OSError as e:
            raise StackError(
                f"what was sent cannot be stored: {first_line(e)}", location=str(self._file)
            ) from None
        return changes

    def _load(self) -> tuple[dict[str, tuple[str, float]], list[str]]:
        """Return what was sent; and, if the file with it is damaged, a line that says so."""
        try:
            return SENT.validate_json(self._file.read_bytes()), []
        except FileNotFoundError:
            return {}, []
        except (OSError, ValidationError):
            return {}, [f"{self._file} is damaged: all problems are reported again"]

    def _send(self, channel: str, text: str) -> None:
        """Send a message; the thread of a server that does not end its answer is abandoned.

        Raises:
            StackError: the channel does not accept the message, or not in time.
        """
        failures: list[Exception] = []

        def send() -> None:
            try:
                getattr(self, f"_send_{channel}")(text)
            except Exception as e:  # noqa: BLE001 - none of the many failures ends the watcher
                failures.append(e)

        location = f"{self.world.file}: watch.{CHANNELS[channel][-1]}"
        thread = self._running.get(channel)
        if not (thread and thread.is_alive()):
            thread = self._running[channel] = threading.Thread(target=send, daemon=True)
            thread.start()
            thread.join(DEADLINE_S)
        if thread.is_alive():
            raise StackError(
                f"{channel} has not ended its answer within {DEADLINE_S:g} s", location=location
            )
        for error in failures:
            if isinstance(error, WorkbenchError):
                raise error
            # the text of an error may have the URL of the webhook, which is a credential
            reason = type(error).__name__ if channel == "webhook" else first_line(error)
            raise StackError(f"{channel} does not accept the message: {reason}", location=location)

    def _send_webhook(self, text: str) -> None:
        assert self.world.watch.webhook
        url = self.world.watch.webhook.reveal()
        status: Any = None
        try:
            # the body of the answer is not read, and a redirect may lead to a service of this machine
            options: dict[str, Any] = {"stream": True, "allow_redirects": False}
            with http.session(url) as client:
                with client.post(url, json={"text": text}, timeout=TIMEOUT_S, **options) as answer:
                    status = answer.status_code
        except requests.RequestException as e:
            status = type(e).__name__
        if status not in range(200, 300):
            raise StackError(
                f"the webhook does not accept the message: {status}",
                location=f"{self.world.file}: watch.webhook",
                expected="a URL that accepts a JSON object with `text`, without a redirect",
            )

    def _send_sns(self, text: str) -> None:
        subject = f"workbench {self.world.name}"
        arguments = {"TopicArn": self.world.watch.sns_topic, "Subject": subject, "Message": text}
        aws.call(self.world.region, "sns", "publish", **arguments)

    def _send_mail(self, text: str) -> None:
        settings = self.world.watch
        message = EmailMessage()
        message["To"] = message["From"] = settings.mail_to
        message["Subject"] = f"workbench {self.world.name}: {text.splitlines()[0]}"[:120]
        message.set_content(text)
        with _MailServer(settings.mail_server, timeout=TIMEOUT_S) as server:
            if settings.mail_password:  # never over a connection without TLS
                server.starttls(context=ssl.create_default_context())
                server.login(settings.mail_user, settings.mail_password.reveal())
            server.send_message(message)


class _MailServer(smtplib.SMTP):
    """A client that reads at most MAX_ANSWER_BYTES of each connection; smtplib has no limit."""

    def getreply(self) -> tuple[int, bytes]:
        """Return the server's next answer."""
        if self.file is None and self.sock:
            self.file = _LimitedFile(self.sock.makefile("rb"))
        return super().getreply()


class _LimitedFile:
    """The answers of a mail server, up to MAX_ANSWER_BYTES."""

    def __init__(self, file: BinaryIO):
        self._file, self._left = file, MAX_ANSWER_BYTES

    def readline(self, size: int = -1) -> bytes:
        line = self._file.readline(size)
        self._left -= len(line)
        if self._left < 0:
            raise smtplib.SMTPServerDisconnected(f"its answer has over {MAX_ANSWER_BYTES:,} bytes")
        return line

    def close(self) -> None:
        self._file.close()


def _signals(observed: Sequence[Observation]) -> dict[str, tuple[str, str]]:
    """Return {`flow signal`: (worst level, texts)}; a signal without a problem has the level ""."""
    signals = {f"{o.flow} {signal}": ("", "") for o in observed for signal in SIGNALS}
    for each in observed:
        for problem in each.problems:
            name = f"{each.flow} {problem.signal}"
            level, text = signals[name]
            worst = max(level, problem.level, key=LEVELS.index)
            signals[name] = (worst, f"{text}\n  {problem.text}\n  {problem.step}")
    return signals
