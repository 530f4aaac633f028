"""The registry: ids that are given once, a log that may be compacted, and what is refused."""

from support.mutated_rules import Rule

__all__ = ["RULES"]

RULES = [
    Rule(
        "an id that has a schema is not taken by another schema",
        "registry/core/state.py",
        "if not holder.is_same_schema(stored):",
        "if False:",
        "test_registry_two_writers.py::test_the_record_of_a_second_writer_is_passed_over_and_repaired",
    ),
    Rule(
        "a version that is there gets another id only in IMPORT mode",
        "registry/core/state.py",
        "if old is not None and old.id != stored.id and not is_import:",
        "if False:",
        "test_registry_two_writers.py::test_a_version_that_a_second_writer_overwrites_stays_what_was_answered",
    ),
    Rule(
        "the leader repairs what a second writer wrote",
        "registry/core/state.py",
        "for raw, key in self._to_repair.items()",
        "for raw, key in ()",
        "test_registry_two_writers.py::test_the_record_of_a_second_writer_is_passed_over_and_repaired",
    ),
    Rule(
        "a registration is answered by what the log says of it",
        "registry/core/registration.py",
        "if written is None or written.id != stored.id or not written.is_same_schema(stored):",
        "if False:",
        "test_registry_two_writers.py::test_the_record_of_a_second_writer_is_passed_over_and_repaired",
    ),
    Rule(
        "the highest id outlives the last schema that has it",
        "registry/core/batch.py",
        "return Decision((*self._state.repairs(), *kept, *self._records), answer)",
        "return Decision((*self._state.repairs(), *self._records), answer)",
        "test_registry_deletion.py::test_the_highest_id_outlives_its_schema_through_compaction",
    ),
    Rule(
        "the highest id is kept where another registry deleted its schema",
        "registry/core/state.py",
        "if index.forgets_highest({})",
        "if False",
        "test_registry_deletion.py::test_the_highest_id_is_kept_where_another_registry_deleted_its_schema",
    ),
    Rule(
        "the deletion of a subject covers the versions that were deleted before",
        "registry/core/subjects.py",
        "batch.delete_subject(subject, versions[-1][0])",
        "batch.delete_subject(subject, numbers[-1])",
        "test_registry_deletion.py::test_a_deletion_holds_after_an_import_below_it_and_compaction",
    ),
    Rule(
        "a key is deleted in each form in which the log has it",
        "registry/core/batch.py",
        "NewRecord(raw, None) for raw in self._state.forms(key)",
        "NewRecord(raw, None) for raw in self._state.forms(key)[:1]",
        "test_registry_records.py::test_a_key_of_another_form_is_deleted_in_its_own_form_too",
    ),
    Rule(
        "ids end with Java's integers",
        "registry/core/registration.py",
        "if state.max_id(context) >= _HIGHEST_ID:",
        "if False:",
        "test_registry_registration.py::test_the_ids_of_a_context_end_with_javas_integers",
    ),
    Rule(
        "an import does not give an id to another schema",
        "registry/core/registration.py",
        "if holders and not holders[0].is_same_schema(schema.stored(1, schema_id)):",
        "if False:",
        "test_registry_registration.py::test_an_import_brings_its_ids_and_versions",
    ),
    Rule(
        "a read-only mode forbids registrations",
        "registry/core/registration.py",
        "if mode.is_read_only:",
        "if False:",
        "test_registry_registration.py::test_a_registration_in_read_only_mode_finds_what_is_there_and_refuses_the_rest",
    ),
    Rule(
        "a read-only mode forbids the deletion of versions",
        "registry/core/subject_versions.py",
        "if self._parts.scoped.mode_in_scope(subject).is_read_only:",
        "if False:",
        "test_registry_deletion.py::test_a_deletion_in_read_only_mode_is_refused",
    ),
    Rule(
        "a read-only mode forbids the deletion of subjects",
        "registry/core/subjects.py",
        "if self._parts.scoped.mode_in_scope(subject).is_read_only:",
        "if False:",
        "test_registry_deletion.py::test_a_deletion_in_read_only_mode_is_refused",
    ),
    Rule(
        "what others refer to is not deleted",
        "registry/core/subject_versions.py",
        "if any(permanent or not each.deleted for each in self._state.referrers(subject, stored.version)):",
        "if False:",
        "test_registry_deletion.py::test_what_others_refer_to_is_not_deleted",
    ),
    Rule(
        "IMPORT mode needs an empty place",
        "registry/core/modes.py",
        "if self._state.has_subjects(scope, deleted=False):",
        "if False:",
        "test_registry_configurations.py::test_import_mode_needs_an_empty_place_or_force",
    ),
    Rule(
        "rights are checked for the subject that an alias stands for",
        "registry/http/operations.py",
        'if "/subjects/{subject}" in operation.path:',
        "if False:",
        "test_registry_paths.py::test_an_alias_is_replaced_in_subjects_and_not_in_configurations",
    ),
    Rule(
        "the policy LOGICAL is refused",
        "registry/core/config_value.py",
        'if str(body.get("compatibilityPolicy")).upper() == _NOT_SUPPORTED:',
        "if False:",
        "test_registry_configurations.py::test_a_configuration_that_is_not_understood_is_refused",
    ),
]
