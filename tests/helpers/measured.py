"""What certificates of embeddings and text classifiers look like where all is well."""

from certus.certificate import Certificate, Strength


def as_told(found: Certificate) -> bool:
    """Nothing is promised of the loss, and it is the one reported; counts hold."""
    primary = found[found.primary]
    assert primary.strength is Strength.MEASURED, found
    return (
        all(claim.met is not False for claim in found.claims)
        and "reported_loss" in found
        and not found["reported_loss"].fix
    )
