# Written by `make stubs` from the rows of the package; do not edit.
from certus.testing.items import Item as Item
from certus.testing.items import Section as Section
from certus.testing.checks import assert_certified as assert_certified
from certus.testing.items import catalog as catalog
from certus.testing.items import resolve as resolve
from certus.testing.items import sections as sections
