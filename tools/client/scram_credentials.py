"""New SCRAM credentials of users, as requests carry them: salted, so that a password does not leave its process.

Owns the salt and the default number of iterations. Must not know who needs a credential.
"""

from collections.abc import Mapping

from protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion

MECHANISMS: Mapping[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
ITERATIONS_DEFAULT = 4096

_SALT_SIZE = 26


def new_credential(
    user: str, mechanism: str, password: str, iterations: int = ITERATIONS_DEFAULT
) -> ScramCredentialUpsertion:
    """Return a credential with a new salt."""
    import hashlib  # few changes are about credentials
    import secrets

    salt = secrets.token_bytes(_SALT_SIZE)
    digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    return ScramCredentialUpsertion(
        name=user, mechanism=MECHANISMS[mechanism], iterations=iterations, salt=salt, salted_password=salted
    )
