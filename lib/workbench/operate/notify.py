"""Notifications: one when a signal of a flow changes its level, and one when it recovers."""

from __future__ import annotations

import json
import smtplib
import ssl
import time
from email.message import EmailMessage
from typing import Sequence

import requests

from ..base import ParamsError, StackError, World, aws, first_line, http, paths
from .problems import LEVELS, SIGNALS, Observation

TIMEOUT_S = 10.0
PAUSE_S = 60.0  # at least, between two notifications of one signal
# {channel: the keys in section `watch` that it needs}
CHANNELS = {
    "webhook": ("webhook",),
    "sns": ("sns_topic",),
    "mail": ("mail_to", "mail_server"),
}


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

    def report(self, observed: Sequence[Observation]) -> list[str]:
        """Send one message with all changes, if there are any, and return the changes.

        A signal that changes again within PAUSE_S is reported later, with its level then.

        Raises:
            StackError: a message was not accepted; the next report repeats it on all channels.
        """
        stored = self._file.read_text(encoding="utf-8") if self._file.exists() else "{}"
        sent: dict[str, tuple[str, float]] = json.loads(stored)
        changes, now = [], time.time()
        for signal, (level, text) in _signals(observed).items():
            before, since = sent.get(signal, ("", 0.0))
            if level != before and now - since >= PAUSE_S:
                changes.append(f"{level or 'recovered'}: {signal}{text}")
                sent[signal] = (level, now)
        for channel in self.channels if changes else ():
            getattr(self, f"_send_{channel}")("\n".join(changes))
        paths.write_private_file(self._file, json.dumps(sent).encode())
        return changes

    def _send_webhook(self, text: str) -> None:
        assert self.world.watch.webhook
        url = self.world.watch.webhook.reveal()
        try:
            with http.session(url) as client:
                client.post(url, json={"text": text}, timeout=TIMEOUT_S).raise_for_status()
        except requests.RequestException as e:
            status = getattr(e.response, "status_code", type(e).__name__)
            raise StackError(
                f"the webhook does not accept the message: {status}",
                location=f"{self.world.file}: watch.webhook",
                expected="a URL that accepts a JSON object with `text`",
            ) from None  # the error has the URL

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
        try:
            with smtplib.SMTP(settings.mail_server, timeout=TIMEOUT_S) as server:
                if settings.mail_password:  # never over a connection without TLS
                    server.starttls(context=ssl.create_default_context())
                    server.login(settings.mail_user, settings.mail_password.reveal())
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as e:
            raise StackError(
                f"the mail server does not accept the message: {first_line(e)}",
                location=f"{self.world.file}: watch.mail_server",
            ) from None


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
