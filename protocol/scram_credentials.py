"""SCRAM credentials of users as requests carry them: salted, so that a password does not leave its process (KIP-554).

Owns the mechanisms, and what becomes of a password. Must not know who needs a credential.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion

MECHANISMS: Mapping[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
ITERATIONS_DEFAULT = 4096
SALT_SIZE = 26


def salted_credential(
    user: str, mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS_DEFAULT
) -> ScramCredentialUpsertion:
    """Return a credential; `salt` is `SALT_SIZE` random bytes."""
    import hashlib  # few processes make credentials

    digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    return ScramCredentialUpsertion(
        name=user, mechanism=MECHANISMS[mechanism], iterations=iterations, salt=salt, salted_password=salted
    )
