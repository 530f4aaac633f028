"""Running a flow: Spark starts, the query runs until it is done, stopped or broken,
and everything is closed.

Exactly once in results, though the driver may die at any moment:

- Spark notes a micro-batch's end offsets before it runs it, and runs it again with the
  same ones after a crash.
- Spark does not note where the first micro-batch of a Python source begins, and "latest" would have
  moved on after a crash. So the beginning is resolved once, and kept beside the checkpoint
  (``start.json``) before the query starts.
- Sinks take a batch again without harm (`barnabas.pipelines.running.batch_sinks`).
- A lock file keeps two drivers off one checkpoint.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.files import OsFiles
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint, sink_files
from barnabas.pipelines.cluster.offsets import Offsets, from_json, require_known, to_json
from barnabas.pipelines.cluster.options import SourceOptions
from barnabas.pipelines.connector.admission import Admission, admission_file
from barnabas.pipelines.connector.flow_options import source_options
from barnabas.pipelines.connector.letters import letters_file, noted_letters
from barnabas.pipelines.connector.lost_records import LostRecords, loses_uncounted, lost_file
from barnabas.pipelines.errors import (
    DAMAGED_ADVICE,
    OTHER_STATE_ADVICE,
    PipelineError,
    reason_of,
    secrets_hidden,
    with_advice,
)
from barnabas.pipelines.flow_file.masters import shown_master
from barnabas.pipelines.packages import require_extra
from barnabas.pipelines.progress.bad_limits import BadRowLimits
from barnabas.pipelines.progress.summary_text import lost_text, mixed_text, table_problem
from barnabas.pipelines.running.expression_places import failed_expression
from barnabas.pipelines.running.guards import broken_end_noted, locked_checkpoint, note_end, stop_signals
from barnabas.pipelines.running.key_notes import settle_keys
from barnabas.pipelines.running.restarts import Restarts, restarts_of, transient_fault
from barnabas.pipelines.spark.protection import OPEN_CALLBACKS, UNPROTECTED, lacks_secret
from barnabas.pipelines.spark.session import open_flow_session
from barnabas.pipelines.specification.spec import Flow, Source, SpecError

__all__ = ["run_flow", "run_on"]

_POLL_S = 0.3
_BAD_ROWS_DELAY_S = 30.0
"""For how long the queries of bad rows wait for the first micro-batch of results."""
_IMPORTED = (
    "barnabas.pipelines.checks.analysis",
    "barnabas.pipelines.frames.views",
    "barnabas.pipelines.progress.listener",
    "barnabas.pipelines.progress.progress",
    "barnabas.pipelines.running.batch_sinks",
)
"""Modules that a run needs once Spark is there."""
_NO_CONNECTOR = (
    'is "kafka", but Spark has no such connector: name its jars, resources.spark = {"spark.jars" = "/path/a.jar,/path/b.jar"}, or '
    'let Spark fetch them, "spark.jars.packages"'
)


def run_flow(
    flow: Flow,
    *,
    once: bool = False,
    accept_bad_rows: bool = False,
    show: Callable[[Any], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Runs the flow until all that is there now is done (``once``, or its trigger
    says so) or a signal comes.

    ``accept_bad_rows`` lets a flow go on that its bad rows have ended: they are counted from 0.
    ``show`` is called with `Totals` after each micro-batch, ``say`` with lines for people. Returns
    the summary. Raises `BarnabasError` with the reason when the flow breaks. Must be called on the
    main thread, for the signals' sake.
    """
    require_extra()
    with secrets_hidden(flow.hide):
        return _run_flow(flow, accept_bad_rows, show, lambda text: say(flow.hide(text)), once=once)


def _run_flow(
    flow: Flow, accept_bad_rows: bool, show: Callable[[Any], None], say: Callable[[str], None], *, once: bool
) -> dict[str, Any]:
    checkpoint = Path(flow.checkpoint)
    _refuse_other_state(flow, say)
    notes = Checkpoint(flow)
    with locked_checkpoint(checkpoint), stop_signals() as stopped:
        limits = BadRowLimits(flow, say)
        if accept_bad_rows:
            limits.forget()
        limits.require_start()
        with broken_end_noted(notes, flow):
            with contextlib.suppress(OSError):  # noted again when Spark is there
                notes.note_run({})  # so that `pipeline stop` knows the process from now on
            master = flow.resources.master
            say(f"starting Spark for {flow.name}{' on ' + shown_master(master) if master else ''}")
            if lacks_secret(master or "local", flow.resources.spark):
                say(f"warning: {UNPROTECTED}")
            session = open_flow_session(flow, imports=_IMPORTED)
            try:
                if session.jvm.has_open_callbacks:
                    say(f"warning: {OPEN_CALLBACKS}")
                if stopped.is_set():
                    summary: dict[str, Any] = {"flow": flow.name, "status": "stopped"}
                else:
                    summary = _Run(flow, session.spark, limits, show, say, stopped).run(once=once)
            finally:
                session.close(say)
            note_end(notes, summary["status"])
            return summary


def _refuse_other_state(flow: Flow, say: Callable[[str], None]) -> None:
    """Raise `SpecError` if the checkpoint was made by a flow whose state or positions
    this one cannot go on with."""
    changes = Checkpoint(flow).changes()
    for each in changes:
        if each.fits:
            say(f"changed since the last run: {each.field} {each.message}")
    wrong = [str(flow.places.error(each.field, each.message)) for each in changes if not each.fits]
    if wrong:
        wrong.append(f"the checkpoint {flow.checkpoint} does not fit this flow: {OTHER_STATE_ADVICE}")
        raise SpecError.of_lines(*wrong)


def run_on(
    spark: Any, flow: Flow, *, say: Callable[[str], None] = lambda _: None, ends: Sequence[Offsets] | None = None
) -> dict[str, Any]:
    """Runs the flow on a session that is there already, until all that is in its
    topics now is done.

    So tests of flows run, and `barnabas.pipelines.verification.verification`
    computes results once more.

    ``ends`` are for each source the offsets at which it stops before; a partition that they
    do not name is not read.
    """
    notes = Checkpoint(flow)
    with secrets_hidden(flow.hide), locked_checkpoint(Path(flow.checkpoint)):
        limits = BadRowLimits(flow, say)
        limits.require_start()
        with broken_end_noted(notes, flow):
            run = _Run(flow, spark, limits, lambda _: None, say, threading.Event(), settles=ends is None, ends=ends)
            summary = run.run(once=True)
            note_end(notes, summary["status"])
            return summary


class _Run:
    """One run of a flow on a session."""

    def __init__(
        self,
        flow: Flow,
        spark: Any,
        limits: BadRowLimits,
        show: Callable[[Any], None],
        say: Callable[[str], None],
        stopped: threading.Event,
        *,
        settles: bool = False,
        ends: Sequence[Offsets] | None = None,
    ) -> None:
        """``ends``: see `run_on`.

        ``settles`` lets the watermark take effect before the end of a run: Spark drops late rows
        two micro-batches later."""
        from barnabas.pipelines.progress.progress import GroupCommitter, Progress

        self._flow = flow
        self._spark = spark
        self._checkpoint = Path(flow.checkpoint)
        self._say = say
        self._stopped = stopped
        self._sinks: list[Any] = []
        self._scorer: Any = None
        self._failure: BaseException | None = None
        self._ids: Any = None
        self._is_ending = False
        """What breaks from now on does so because the queries are stopped."""
        self._queries: list[Any] = []
        """The main query first, once it is started."""
        self._settles = settles
        self._ends = ends
        self._restarts = Restarts()
        self._broken = ("", -1)
        """The query that broke last, and the last micro-batch that it finished."""
        self._order: list[str] = []
        """The sources as the main query reads them."""
        self._operations: list[str] = []
        """What the main query keeps state for."""
        self._later: list[Source] = []
        """Sources whose queries for bad rows are not started yet."""
        self._later_at_s = 0.0
        self._deciding: set[str] = set()
        """Names of the queries that quarantine."""
        self._warned: set[str] = set()
        self._listener: Any = None
        committers = [
            GroupCommitter(
                {**source.kafka, "bootstrap.servers": source.bootstrap_servers}, source.group, say, source.covers
            )
            for source in flow.sources
            if source.group
        ]
        self._notes = Checkpoint(flow)
        self._limits = limits
        self._lost = LostRecords(self._checkpoint)
        self._show = show
        self._progress = Progress(committers, self._note)

    def run(self, *, once: bool) -> dict[str, Any]:
        from pyspark.errors import PySparkException

        from barnabas.pipelines.checkpoints.topic_ids import MADE_AGAIN
        from barnabas.pipelines.checks.analysis import without_spark_logging
        from barnabas.pipelines.cluster.kafka_cluster import ClusterError

        is_done = False
        try:
            self._lost.begin()
            letters_file(self._checkpoint).unlink(missing_ok=True)
            self._notes.note_run({})
            clusters = [source.bootstrap_servers for source in self._flow.sources]
            self._progress.resume(self._notes.position(), clusters)
            self._require_same_topics()
            while not is_done and not self._stopped.is_set():
                try:
                    with without_spark_logging():
                        is_done = self._run_queries(once=once)
                except PySparkException as error:
                    if MADE_AGAIN in str(error) and self._require_same_topics():
                        continue
                    fault = transient_fault(error, self._failure)
                    if not self._restarts.allows_another(*self._broken, error, self._failure):
                        if fault:
                            raise PipelineError(
                                f"{fault} The flow was started {self._restarts.count} times and came no further. Free memory and "
                                "processors, and run it again: it goes on from its checkpoint, and nothing is lost"
                            ) from error
                        raise self._placed(error) from error
                    if fault:
                        count = self._restarts.count
                        self._say(f"{fault} Starting again from the checkpoint, {count} of {restarts_of(fault)}")
                finally:
                    self._put_away()
            self._limits.check(self._progress.totals, is_final=is_done)
            self._limits.forget()
        except ClusterError:
            if not self._stopped.is_set():
                raise
        except BarnabasError as error:
            if (advised := with_advice(error, self._checkpoint, sink_files(self._flow))) is error:
                raise
            raise advised from error
        finally:
            self._progress.close()
        self._count_letters(self._progress.totals)
        self._count_lost(self._progress.totals)
        status = "done" if is_done else "stopped"
        return {"flow": self._flow.name, "status": status, **self._progress.totals.as_dict()}

    def _placed(self, error: Exception) -> BarnabasError:
        """The reason why a query broke.

        If an expression of the file failed, it names the field, and the records that
        may be the cause."""
        reason = reason_of(error, self._failure)
        field = failed_expression(self._flow, str(self._failure), str(error))
        if field is None or isinstance(self._failure, BarnabasError):
            return reason
        where = ", ".join(
            f"{each.topic}-{each.partition} offsets {each.start} to {each.end - 1}" for each in self._notes.unfinished()
        )
        return self._flow.places.error(
            field,
            f"{reason}. Nothing of the micro-batch{f' ({where})' if where else ''} is in a sink, and the next run ends here, too. "
            "Change the expression so that it accepts such rows (try_divide, try_cast, coalesce), or exclude them with an expectation "
            "on the source",
        )

    def _require_same_topics(self) -> bool:
        """Whether topics in which the checkpoint has positions were deleted and made again since.

        The flow goes on with the new ones. Raises `DataLossError` if the flow must
        not lose records.
        """
        from barnabas.pipelines.checkpoints.topic_ids import TopicIds
        from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster

        self._ids = ids = TopicIds(self._checkpoint)
        are_others = False
        for source in self._flow.sources:
            options = SourceOptions.parse(source_options(source), streaming=True)
            cluster = KafkaCluster(options, is_stopped=self._stopped.is_set)
            for topic in ids.require_same(source, cluster, self._flow, self._say):
                self._lost.begin_topic(source.name, topic)
                are_others = True
        ids.save()
        return are_others

    def _run_queries(self, *, once: bool) -> bool:
        """Start the flow's queries, and wait until they end (True), one breaks (its error is
        raised), or a signal comes."""
        self._failure = None
        self._is_ending = False
        self._broken = ("", -1)
        self._start_checked(once=once)
        self._notes.note_flow(self._order, self._operations, self._spark.version)
        self._say(f"reading {', '.join(source.pattern or ', '.join(source.topics) for source in self._flow.sources)}")
        is_done = False
        while not is_done and not self._stopped.is_set() and not any(query.exception() for query in self._queries):
            self._start_later()
            is_done = not self._later and not any(query.isActive for query in self._queries)
            self._limits.check(self._progress.totals)
            if not is_done:
                self._stopped.wait(_POLL_S)
        failed = next(((query, found) for query in self._queries if (found := query.exception())), None)
        self._is_ending = True
        self._stop()
        if failed is not None and not self._stopped.is_set():
            query, error = failed
            progress = query.lastProgress
            self._broken = (query.name, progress["batchId"] if progress else -1)
            raise error
        return is_done

    def _put_away(self) -> None:
        """Stop the queries and close what they used; safe to call again."""
        self._stop()
        self._queries = []
        self._later = []
        if self._listener is not None:
            self._spark.streams.removeListener(self._listener)
            self._listener = None
        for sink in self._sinks:
            sink.close()
        self._sinks = []

    def _count_mixed(self, keys: int) -> None:
        self._progress.totals.mixed_keys += keys
        if keys and "order" not in self._warned:
            self._warned.add("order")
            self._say(f"warning: {mixed_text(keys)}")

    def _count_letters(self, totals: Any) -> None:
        """Put into the figures which dead letters were cut.

        Figures for people, which end no run."""
        try:
            noted = noted_letters(letters_file(self._checkpoint)).values()
        except OSError:
            return
        notes = [note for note in noted if note.cut_bytes]
        totals.cut_letters = len(notes)
        if notes:
            totals.cut_letter_example = f"{notes[0].position} ({notes[0].cut_bytes:,} bytes are left out)"

    def _count_lost(self, totals: Any) -> None:
        """Put into the figures what is lost; raises `OSError`."""
        if loses_uncounted(self._flow):
            totals.lost_records = None
            return
        totals.lost = self._lost.by_partition()
        totals.lost_records = sum(totals.lost.values())
        if totals.lost and "lost" not in self._warned:
            self._warned.add("lost")
            self._say(f"warning: {lost_text(totals.lost)}")

    def _note(self, totals: Any) -> None:
        self._count_letters(totals)
        with contextlib.suppress(OSError):  # counted again at the end, which fails then
            self._count_lost(totals)
        for name, counts in totals.tables.items():
            if counts["bad_rows"] and f"tables.{name}" not in self._warned:
                self._warned.add(f"tables.{name}")
                self._say(f"warning: {table_problem(name, counts)}")
        try:
            self._notes.note_run(totals.as_dict())
            self._limits.note(totals)
        except OSError as error:
            # Spark writes what the flow depends on; these are figures for people.
            if "run.json" not in self._warned:
                self._warned.add("run.json")
                self._say(f"warning: the figures of this run are not kept: {self._checkpoint}: {error.strerror}")
        self._show(totals)

    def _stop(self) -> None:
        for query in self._queries:
            with contextlib.suppress(Exception):  # a broken query is reported by its own exception
                query.stop()
        for query in self._queries:
            if query.name != self._flow.name:
                continue
            # The listener is called for the last batch a moment later, or never if
            # Spark ends first.
            with contextlib.suppress(Exception):
                for report in query.recentProgress:
                    self._progress.update(_plain(report))

    def _start_checked(self, *, once: bool) -> None:
        """Start the flow's queries; if Spark refuses the flow, raise an error that names each
        wrong field and its line."""
        from pyspark.errors import PySparkException

        from barnabas.pipelines.checks.analysis import find_problems

        try:
            self._start(once=once)
        except PySparkException as error:
            if error.getCondition() == "DATA_SOURCE_NOT_FOUND":
                raise SpecError(str(self._flow.places.error("resources.connector", _NO_CONNECTOR))) from error
            if not transient_fault(error) and (problems := find_problems(self._spark, self._flow)):
                places = self._flow.places
                raise SpecError.of_lines(*(str(places.error(each.field, each.message)) for each in problems)) from error
            raise

    def _start(self, *, once: bool) -> None:
        from barnabas.pipelines.frames.plans import follows_clock, output_mode, read_sources, stateful_operations
        from barnabas.pipelines.frames.transforms import field_types
        from barnabas.pipelines.frames.views import build_views
        from barnabas.pipelines.progress.listener import ProgressListener
        from barnabas.pipelines.running.batch_sinks import open_sinks, require_batches

        flow = self._flow
        results = build_views(self._spark, flow, self._records, observed=True).results
        self._order = read_sources(results)
        self._notes.require_order(self._order)
        self._operations = stateful_operations(results)
        self._notes.require_state(self._operations, self._spark.version)
        servers = {source.name: source.bootstrap_servers for source in flow.sources}
        self._progress.clusters = [servers[name] for name in self._order]
        mode = output_mode(results)
        if flow.model:
            from barnabas.pipelines.models.scoring import Scorer

            self._scorer = Scorer(flow.model, self._checkpoint, self._say)
        scored = self._scorer.add_columns(results) if self._scorer else results
        self._sinks = list(open_sinks(flow, scored, is_stopped=self._stopped.is_set))
        require_batches(flow, self._notes, self._sinks)
        settle_keys(flow, self._notes, field_types(scored.schema), self._say)
        self._listener = ProgressListener(flow.name, self._progress)
        self._spark.streams.addListener(self._listener)
        writer = results.writeStream.queryName(flow.name).outputMode(mode)
        writer = writer.foreachBatch(self._guarded(self._write)).option(
            "checkpointLocation", str(self._checkpoint / "main")
        )
        # Rows that wait for the watermark, as sessions do, are given out without new records, too.
        waits = "true" if (mode == "append" or self._settles) and flow.waits_for_watermark else "false"
        if not (once or flow.trigger.available_now) and follows_clock(results):
            waits = "true"  # state is out of time without new records, too
        self._spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", waits)
        is_once = once or flow.trigger.available_now
        sources = [source for source in flow.sources if source.bad_rows_topic]
        # Code of Spark that runs for the first time is slow: results come first, but where bad rows
        # end the flow or are judged.
        self._later = [] if is_once else [each for each in sources if not (each.quarantines or each.max_bad)]
        for source in sources:
            if source not in self._later:
                self._queries.append(self._start_bad_rows(source, once=once))
        if is_once:
            self._await_decisions()
        self._queries.insert(0, self._trigger(writer, once=once).start())
        self._later_at_s = time.monotonic() + _BAD_ROWS_DELAY_S

    def _start_later(self) -> None:
        """Start the other queries for bad rows when the first micro-batch of results
        is done or takes long."""
        while self._later and (self._progress.totals.batches or time.monotonic() >= self._later_at_s):
            self._queries.append(self._start_bad_rows(self._later.pop(0), once=False))

    def _await_decisions(self) -> None:
        """Wait until quarantines have judged all that is there; the main query reads no further."""
        deciding = [query for query in self._queries if query.name in self._deciding]
        while not self._stopped.is_set() and any(query.isActive for query in deciding):
            self._stopped.wait(_POLL_S)
        for query in deciding:
            if (failed := query.exception()) is not None:
                raise failed

    def _start_bad_rows(self, source: Source, *, once: bool) -> Any:
        """A query of its own, for a stream cannot be split before an aggregate.

        It reads the topics again."""
        from barnabas.pipelines.checkpoints.topic_ids import bad_rows_query
        from barnabas.pipelines.dead_letters.dead_letters import DeadLetters
        from barnabas.pipelines.dead_letters.quarantine import Quarantine
        from barnabas.pipelines.frames import transforms
        from barnabas.pipelines.frames.views import source_rows

        flow = self._flow
        parsed = transforms.parse_records(self._records(source, headers=True), source.format, source.record_columns)
        marked, _ = source_rows(flow, source, parsed)
        suffix = bad_rows_query(flow, source)
        if source.quarantines:
            quarantine = Quarantine(flow, source, suffix, self._progress, self._say)
            writer = marked.writeStream.foreachBatch(self._guarded(quarantine.decide))
            self._deciding.add(f"{flow.name}-{suffix}")
        else:
            letters = DeadLetters(flow, source, self._say)
            writer = marked.writeStream.foreachBatch(self._guarded(letters.take))
        writer = writer.queryName(f"{flow.name}-{suffix}").outputMode("append")
        writer = writer.option("checkpointLocation", str(self._checkpoint / suffix))
        return self._trigger(writer, once=once).start()

    def _guarded(self, act: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        """The function for ``foreachBatch``.

        It keeps what ``act`` raises, because Spark passes on only a text."""

        def guarded(batch: Any, epoch: int) -> None:
            try:
                act(batch, epoch)
            except BaseException as error:
                if (
                    self._failure is None and not self._is_ending
                ):  # what follows may be a query that is cancelled because this one failed
                    self._failure = error
                raise

        return guarded

    def _trigger(self, writer: Any, *, once: bool) -> Any:
        trigger = self._flow.trigger
        if once or trigger.available_now:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=trigger.interval) if trigger.interval else writer

    def _records(self, source: Source, *, headers: bool = False) -> Any:
        from barnabas.pipelines.checkpoints.topic_ids import bad_rows_query
        from barnabas.pipelines.frames.plans import SOURCE_OPTION
        from barnabas.pipelines.frames.transforms import record_types

        types = record_types(source, headers=headers)
        connector = self._flow.resources.connector
        reader = self._spark.readStream.format(connector)
        if connector == "barnabas":
            reader = reader.schema(", ".join(f"{name} {kind}" for name, kind in types.items()))
        options = source_options(source)
        start = self._starting_offsets(source, options)
        # The query that reads headers decides what this one may read.
        if source.quarantines and not headers:
            options["admissionFile"] = str(admission_file(self._checkpoint, source.name))
        if self._ends is not None:
            path = admission_file(self._checkpoint, source.name)
            Admission(0, self._ends[self._flow.sources.index(source)]).save(path)
            options["admissionFile"] = str(path)
        if connector == "barnabas" and not source.fail_on_data_loss:
            options["lostFile"] = str(lost_file(self._checkpoint).absolute())
        options |= {
            "includeHeaders": str("headers" in types).lower(),
            "startingOffsets": start,
            SOURCE_OPTION: source.name,
        }
        query = bad_rows_query(self._flow, source) if headers else "main"
        if self._ids is not None and (topics := self._ids.to_begin(source, query)):
            options["madeAgain"] = ",".join(topics)
        return reader.options(**options).load().select(*types)

    def _starting_offsets(self, source: Source, options: dict[str, str]) -> str:
        """Where the flow's first run began, as offsets; decided by the first run and kept."""
        from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster

        path = self._checkpoint / ("start.json" if source is self._flow.source else f"start-{source.name}.json")
        if path.exists():
            try:
                return to_json(from_json(path.read_text(encoding="utf-8")))
            except BarnabasError as error:
                raise PipelineError(f"{path} is damaged: {error}; {DAMAGED_ADVICE}") from error
        asked = SourceOptions.parse({**options, "startingOffsets": source.starting_offsets}, streaming=True)
        cluster = KafkaCluster(asked, is_stopped=self._stopped.is_set)
        partitions = cluster.partitions()
        try:
            require_known(asked.start.offsets, partitions)
        except BarnabasError as error:
            raise self._flow.places.error(f"{source.field}.starting_offsets", str(error)) from error
        start = to_json(cluster.resolve(partitions, asked.start))
        OsFiles().write_atomically(str(path), start.encode())
        return start

    def _write(self, batch: Any, epoch: int) -> None:
        """One micro-batch into every sink.

        Spark calls it, again if the one before did not reach its end."""
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if not query:
            raise PipelineError("Spark did not report the query's id")
        if self._scorer:
            batch = self._scorer.score(batch, query, epoch)
        if len(self._sinks) > 1:
            batch = batch.persist()
        try:
            for sink in self._sinks:
                before = sink.mixed_keys
                sink.write(batch, query, epoch)
                self._count_mixed(sink.mixed_keys - before)
        finally:
            if len(self._sinks) > 1:
                batch.unpersist()


def _plain(report: Any) -> dict[str, Any]:
    """A progress report as plain values: Spark gives it as an object that is a
    dictionary only at the top."""
    return dict(json.loads(report.json))
