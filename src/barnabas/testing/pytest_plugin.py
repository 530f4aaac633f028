"""The plugin by its earlier name, for ``-p barnabas.testing.pytest_plugin`` and ``pytest_plugins``.

See `pytest_barnabas`. pytest loads that module because it is named here: nothing in
`barnabas` imports it.
"""

pytest_plugins = ["pytest_barnabas"]
