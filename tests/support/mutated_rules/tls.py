"""TLS: protocols, certificates, names, and settings that are not ignored."""

from support.mutated_rules import Rule

__all__ = ["RULES"]

RULES = [
    Rule(
        "ssl.enabled.protocols limits what a port speaks",
        "net/ssl_contexts.py",
        "context.minimum_version, context.maximum_version = versions[0], versions[-1]",
        "pass",
        "test_net_tls.py::test_both_sides_speak_the_protocols_that_are_enabled_and_no_other",
    ),
    Rule(
        "a client's certificate is asked for",
        "net/ssl_contexts.py",
        "context.verify_mode = _CLIENT_AUTH[settings.client_auth]",
        "pass",
        "test_net_tls.py::test_a_client_shows_a_certificate_where_one_is_asked_for",
    ),
    Rule(
        "a server's name is compared",
        "net/ssl_contexts.py",
        "context.check_hostname = settings.verifies_host",
        "context.check_hostname = False",
        "test_net_tls.py::test_a_server_of_another_name_is_refused_where_names_are_compared",
    ),
    Rule(
        "clients' certificates without trusted ones end the start",
        "net/ssl_contexts.py",
        'if settings.client_auth != "none" and not _load_trusted(context, settings):',
        'if settings.client_auth != "none" and not _load_trusted(context, settings) and False:',
        "test_net_tls.py::test_a_store_that_cannot_be_used_is_named",
    ),
    Rule(
        "TLS is not renegotiated",
        "net/ssl_contexts.py",
        "    context.options |= ssl.OP_NO_RENEGOTIATION\n",
        "    context.options &= ~ssl.OP_NO_RENEGOTIATION\n",
        "test_net_tls.py::test_neither_side_negotiates_again",
    ),
    Rule(
        "ZooKeeper's ssl.enabledProtocols is kept",
        "net/zookeeper_tls.py",
        "protocols=tuple(protocols) if all(protocols) else TLS_PROTOCOLS,",
        "protocols=TLS_PROTOCOLS,",
        "test_coordination_client_config.py::test_names_of_kafkas_tools_mean_what_zookeepers_mean",
    ),
    Rule(
        "a listener's protocols are read",
        "broker/configuration/listener_security.py",
        'protocols=tuple(view("ssl.enabled.protocols")),',
        'protocols=("TLSv1.2", "TLSv1.3"),',
        "test_listener_security.py::test_each_listener_has_its_own_values_before_those_of_all",
    ),
    Rule(
        "a listener's ssl.client.auth is read",
        "broker/configuration/listener_security.py",
        "client_auth=_client_auth(view, has_sasl),",
        'client_auth="none",',
        "test_listener_security.py::test_each_listener_has_its_own_values_before_those_of_all",
    ),
    Rule(
        "the name of other brokers is compared",
        "broker/configuration/listener_security.py",
        'verifies_host=view("ssl.endpoint.identification.algorithm").lower() == "https",',
        "verifies_host=False,",
        "test_listener_security.py::test_the_names_of_other_brokers_are_compared_unless_that_is_switched_off",
    ),
    Rule(
        "a security setting that no listener has ends the start",
        "broker/configuration/listener_security.py",
        "        if not (bool(text.strip()) if setting is None else asks_for_security(setting, text)):\n            continue\n",
        "        continue\n",
        "test_listener_security.py::test_what_is_missing_or_cannot_be_done_is_named_and_no_secret_is",
    ),
]
