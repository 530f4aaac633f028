"""What modules of unit tests share: instances of the registry."""

import pytest

from support.registry_log import Instance, SchemasLog


@pytest.fixture
def instance() -> Instance:
    """A registry with an empty log."""
    return Instance(SchemasLog())


@pytest.fixture
def free(instance: Instance) -> Instance:
    """One that lets any schema follow another one."""
    instance.set_config(":.__GLOBAL:", compatibility="NONE")
    return instance
