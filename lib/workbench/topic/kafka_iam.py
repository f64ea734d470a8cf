"""IAM access control of MSK: the credentials that a Kafka client presents to a broker.

Source: Amazon MSK Developer Guide, "IAM access control". No truststore is configured. MSK's
certificates are signed by Amazon Trust Services, which the truststores of Java and of operating
systems contain. (The published walkthroughs configure a copy of Java's truststore.)
"""

from typing import TYPE_CHECKING, Any

from ..base import World, aws

if TYPE_CHECKING:
    from botocore.credentials import Credentials

CONNECT_ACTION = "kafka-cluster:Connect"
ACCESS_HINT = (
    "is this machine in the cluster's network (port 9098)? Are the AWS credentials valid (`aws sts "
    f"get-caller-identity`), and do they allow {CONNECT_ACTION}?"
)
JAVA_CLIENT_PROPERTIES = aws.KAFKA_IAM_PROPERTIES


def settings(world: World) -> dict[str, Any]:
    """Return the authentication settings of a confluent_kafka client.

    The client requests a new token before the current one expires. It polls for the first token once
    a second, so the creation of a client takes about a second.

    Raises:
        StackError: there are no credentials, or they have expired. (Otherwise the client would report
            a missing token after ten seconds, without the reason.)
    """
    token(world)
    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: token(world)}


def token(world: World) -> tuple[str, float]:
    """Return a token, which is a signed URL, and its expiry in seconds since 1970.

    The token is signed locally. Only the broker can report that the credentials have expired.

    Raises:
        StackError: there are no credentials, or they cannot be renewed.
    """
    from aws_msk_iam_sasl_signer.MSKAuthTokenProvider import (
        generate_auth_token_from_credentials_provider as sign,
    )

    with aws.translate_errors(f"{CONNECT_ACTION} in {world.region}"):
        provider = world.state.get("credentials of MSK", _create_credentials)
        url, expiry_ms = sign(world.region, provider)
    return url, expiry_ms / 1000


def _create_credentials() -> Any:
    """Return a provider of boto3's credentials, which botocore renews.

    The signer's default provider searches for credentials again for each token, and does not report
    missing credentials.
    """
    import boto3
    from botocore.credentials import CredentialProvider
    from botocore.exceptions import NoCredentialsError

    session = boto3.Session()

    class SessionCredentials(CredentialProvider):  # type: ignore[misc]  # botocore has no types
        def load(self) -> "Credentials":
            credentials = session.get_credentials()
            if credentials is None:
                raise NoCredentialsError()
            return credentials

    return SessionCredentials()
