"""Who may do what at a broker: the decision, and the entries that it is made from."""

from support.mutated_rules import Rule

__all__ = ["RULES"]

RULES = [
    Rule(
        "an entry that denies goes before those that allow",
        "broker/authorizer/authorizer.py",
        "return allowed & ~_expanded(found >> _DENIED_BITS) & _ALL_OPERATIONS",
        "return allowed & _ALL_OPERATIONS",
        "test_authorizer.py::test_a_denial_goes_before_everything_that_allows",
    ),
    Rule(
        "an entry for ALL is one for each operation",
        "broker/authorizer/authorizer.py",
        "return _ALL_OPERATIONS if bits >> AclOperation.ALL & 1 else bits & _ALL_OPERATIONS",
        "return bits & _ALL_OPERATIONS",
        "test_authorizer.py::test_a_denial_goes_before_everything_that_allows",
    ),
    Rule(
        "a resource with an ACL of others is closed where those without ACLs are open",
        "broker/authorizer/authorizer.py",
        "if self._allow_everyone and not self._has_acls(resource_type, name) else 0",
        "if self._allow_everyone else 0",
        "test_authorizer.py::test_a_resource_without_acls_is_open_if_so_configured",
    ),
    Rule(
        "what was decided is forgotten when entries change",
        "broker/authorizer/authorizer.py",
        "self.version += 1\n        self._decided.clear()",
        "self.version += 1",
        "test_authorizer.py::test_a_change_of_entries_counts_at_once",
    ),
    Rule(
        "a denied prefix covers the names of entries that allow",
        "broker/authorizer/authorizer.py",
        "return not any(name[:length] in denied_prefixes for length in lengths)",
        "return True",
        "test_authorizer.py::test_a_right_to_any_resource_of_a_type_is_one_that_no_denial_covers",
    ),
    Rule(
        "what is kept of a producer's rights ends with them",
        "broker/apis/produce.py",
        "if rights is None or rights.valid_for != valid_for:",
        "if rights is None:",
        "test_topic_rights.py::test_a_topic_that_is_allowed_is_asked_for_once",
    ),
    Rule(
        "a broker opens when its entries are read",
        "broker/server.py",
        "            await components.acls.load()",
        "            pass",
        "test_acl_manager.py::test_a_broker_does_not_open_before_its_acls_are_known",
    ),
    Rule(
        "entries that cannot be read stop the start",
        "broker/authorizer/acl_store.py",
        "                raise acls",
        "                continue",
        "test_acl_store.py::test_a_znode_that_cannot_be_read_stops_the_start_and_later_denies",
    ),
    Rule(
        "a pattern whose entries cannot be read denies",
        "broker/authorizer/acl_store.py",
        "        self._authorizer.update(pattern, UNREADABLE_ACLS)",
        "        self._authorizer.unreadable.add(pattern)",
        "test_acl_store.py::test_a_new_znode_that_cannot_be_read_denies_all_but_super_users_until_it_can_be",
    ),
    Rule(
        "half a character cannot be read",
        "broker/authorizer/acl_znodes.py",
        "        value.encode()\n",
        "        pass\n",
        "test_acl_store.py::test_a_znode_that_cannot_be_read_stops_the_start_and_later_denies",
    ),
    Rule(
        "the delay of a starting broker tells nothing of a topic without a right to it",
        "broker/apis/first_updates.py",
        "return topic in self.metadata or not self._has_rights(request, topic)",
        "return topic in self.metadata",
        "test_broker_first_metadata.py::test_the_delay_says_nothing_of_topics_that_a_client_has_no_right_to",
    ),
    Rule(
        "entries that were written by another broker meanwhile are not overwritten",
        "broker/authorizer/acl_store.py",
        "op = SetData(path, data, version)",
        "op = SetData(path, data, -1)",
        "test_acl_store.py::test_a_change_is_made_to_what_another_broker_has_written_meanwhile",
    ),
    Rule(
        "a new session reads the entries again",
        "broker/authorizer/service.py",
        "            self._must_reload = True\n            for follower",
        "            for follower",
        "test_acl_manager.py::test_a_broker_follows_the_others_and_finds_in_a_new_session_what_it_has_missed",
    ),
    *(
        Rule(
            f"{name} needs a right to the cluster",
            f"broker/apis/{module}.py",
            f"    parts.auth_helper.authorize_cluster_operation(request, AclOperation.{operation})",
            "    pass",
            "test_acl_manager.py::test_acls_are_administered_with_rights_to_the_cluster_alone",
        )
        for name, module, operation in (
            ("CreateAcls", "create_acls", "ALTER"),
            ("DeleteAcls", "delete_acls", "ALTER"),
            ("DescribeAcls", "describe_acls", "DESCRIBE"),
        )
    ),
    Rule(
        "super users need an authorizer",
        "broker/configuration/definitions.py",
        "    check_authorizer(values)",
        "    pass",
        "test_broker_settings.py::test_a_setting_of_the_authorizer_asks_for_one",
    ),
]
