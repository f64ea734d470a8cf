"""MSK's access control by IAM: what proves to a broker who we are (Amazon MSK Developer Guide, "IAM
access control").

No truststore is named: MSK's certificates are signed by Amazon Trust Services, which Java's own
store and those of operating systems have. (The published walkthroughs name a copy of Java's.)
"""

import functools
from typing import Any

from ..base import World, aws

CONNECT_ACTION = "kafka-cluster:Connect"
ACCESS_HINT = (
    f"is this machine in the cluster's network (port 9098)? Are the AWS credentials valid (`aws sts "
    f"get-caller-identity`), and may they {CONNECT_ACTION}?"
)
JAVA_CLIENT_PROPERTIES = aws.KAFKA_IAM_PROPERTIES  # of Java's clients


def settings(world: World) -> dict[str, Any]:
    """Settings of a confluent_kafka client, which asks for another token before its own ends. (It
    waits for the first one in steps of a second, so each client takes as long to be made.)

    Raises: StackError: there are no credentials, or they have expired. (A client whose first token
        does not come says after ten seconds that there is none, not why.)
    """
    token(world.region)
    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: token(world.region)}


def token(region: str) -> tuple[str, float]:
    """Return a token, which is a signed URL, and when it ends, in seconds since 1970 as
    confluent_kafka wants it.

    It is made without asking anybody: that it was signed with credentials that have ended, only the
    broker says.

    Raises: StackError: there are no credentials, or new ones cannot be had.
    """
    from aws_msk_iam_sasl_signer.MSKAuthTokenProvider import (
        generate_auth_token_from_credentials_provider as signed,
    )

    with aws.translate_errors(f"{CONNECT_ACTION} in {region}"):
        text, ends = signed(region, _credentials())
    return text, ends / 1000


@functools.cache
def _credentials() -> Any:
    """What finds credentials where boto3 does; those that end are renewed by botocore. (The
    signer's own way looks for them anew with each token, and has no word for none.)
    """
    import boto3
    from botocore.credentials import CredentialProvider
    from botocore.exceptions import NoCredentialsError

    session = boto3.Session()

    class Found(CredentialProvider):
        def load(self) -> Any:
            found = session.get_credentials()
            if found is None:
                raise NoCredentialsError()
            return found

    return Found()
