"""New SCRAM credentials of users, each with a salt of its own.

Owns the salt. Must not know who needs a credential.
"""

from protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from protocol.scram_credentials import ITERATIONS_DEFAULT, SALT_SIZE, salted_credential


def new_credential(
    user: str, mechanism: str, password: str, iterations: int = ITERATIONS_DEFAULT
) -> ScramCredentialUpsertion:
    """Return a credential with a new salt."""
    import secrets  # few changes are about credentials

    return salted_credential(user, mechanism, password, secrets.token_bytes(SALT_SIZE), iterations)
