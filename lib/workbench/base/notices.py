"""Notices: a text that is sent by webhook, SNS or mail to the addresses of section `watch` of a params file."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage

from . import aws, http
from .errors import ParamsError, StackError, WorkbenchError, first_line
from .params import World

TIMEOUT_S = 10.0  # of one read or write


def require_addresses(world: World, *channels: str) -> None:
    """Raise ParamsError if one of these channels of CHANNELS has no address."""
    for channel in channels:
        for key in CHANNELS[channel][1]:
            if not getattr(world.watch, key):
                raise ParamsError(
                    f"the channel {channel} has no address",
                    location=f"{world.file}: watch.{key}",
                    expected="an address, such as in docs/operations.md",
                )


def send(world: World, channel: str, text: str) -> None:
    """Send a text to the address of a channel.

    Args:
        world: the world, whose section `watch` has the address.
        channel: a key of CHANNELS.
        text: the text; its first line is the subject of a mail.

    Raises:
        StackError: the channel does not accept the text.
    """
    send_text, keys = CHANNELS[channel]
    try:
        send_text(world, text)
    except Exception as e:  # noqa: BLE001 - of three clients, which have no common base class
        # the text of an error may have the URL of the webhook, which is a credential
        shows_text = channel != "webhook" or isinstance(e, WorkbenchError)
        reason = first_line(e) if shows_text else type(e).__name__
        raise StackError(
            f"{channel} does not accept the message: {reason}",
            location=f"{world.file}: watch.{keys[-1]}",
        ) from None


def _send_webhook(world: World, text: str) -> None:
    """Post a JSON object with `text`. A redirect is not followed: it may lead to a service of this machine."""
    assert world.watch.webhook
    url = world.watch.webhook.reveal()
    with http.session(url) as client:
        # the body of the answer is not read
        answer = client.post(
            url, json={"text": text}, timeout=TIMEOUT_S, stream=True, allow_redirects=False
        )
    if answer.status_code not in range(200, 300):
        raise StackError(f"it answers {answer.status_code}")


def _send_sns(world: World, text: str) -> None:
    topic, subject = world.watch.sns_topic, f"workbench {world.name}"
    aws.call(world.region, "sns", "publish", TopicArn=topic, Subject=subject, Message=text)


def _send_mail(world: World, text: str) -> None:
    settings = world.watch
    message = EmailMessage()
    message["To"] = message["From"] = settings.mail_to
    message["Subject"] = f"workbench {world.name}: {text.splitlines()[0]}"[:120]
    message.set_content(text)
    with smtplib.SMTP(settings.mail_server, timeout=TIMEOUT_S) as server:
        if settings.mail_password:  # never over a connection without TLS
            server.starttls(context=ssl.create_default_context())
            server.login(settings.mail_user, settings.mail_password.reveal())
        server.send_message(message)


# {channel: how it sends a text, and the keys in section `watch` that it needs}
CHANNELS = {
    "webhook": (_send_webhook, ["webhook"]),
    "sns": (_send_sns, ["sns_topic"]),
    "mail": (_send_mail, ["mail_to", "mail_server"]),
}
