"""Runs cases in this process: every channel of every case; an error in one does not stop the others. Their results."""

import contextlib
import dataclasses
import gc
import linecache
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from parity.builds.weights.map import MapError
from parity.cases.case import Case
from parity.channels import ALL, CHANNELS, Aspect
from parity.compare.backends.backend import Backend
from parity.compare.clock import PHASES, SideError
from parity.compare.evidence import Evidence
from parity.compare.pairing import LEFT_OUT
from parity.compare.session import Session
from parity.ir.functions import Frame, is_users
from parity.prove.grade import SETTING
from parity.run.explain import ELSEWHERE, blocking, innermost, unplaced
from parity.run.manifest import opened
from parity.run.record import CaseResult
from parity.run.request import Request
from parity.run.waiving import waive
from parity.verdicts import SIDES, ChannelResult, Finding, Verdict

NO_MAP = "no weight map"
MAPS = Path("/proc/self/maps")
MANY_MAPS = 20_000
"""Threshold of memory mappings. Linux allows a process 65,530; a case makes hundreds, a module of tests thousands."""
GC_THRESHOLD = 10_000_000
"""Number of new objects between garbage collections, if these are enabled; Python's default is 700 or 2,000."""
SEARCH_SECONDS = 120.0
"""Time limit of the search for a place by values; `parity bisect` has none."""
LONGEST = 600
"""Maximum number of characters of an error's message in a sentence; the report has the whole message."""


def clear_caches_if_many_mappings(most: int = MANY_MAPS) -> None:
    """Clears JAX's caches if this process has more than ``most`` memory mappings.

    Each program compiled for the CPU adds mappings, and a process with too many crashes in the compiler.
    """
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > most:
        jax.clear_caches()
        gc.collect()  # programs in reference cycles


@contextlib.contextmanager
def raised_gc_threshold() -> Iterator[None]:
    """Raises the garbage collector's threshold in this block: scanning live traces takes a tenth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(before[0] and max(before[0], GC_THRESHOLD), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run_case(case: Case, session: Session, channels: Sequence[str] = ALL) -> CaseResult:
    """Compares one case."""
    if case.placement.skip_reason:
        return skipped_result(case, case.placement.skip_reason)
    if why := case.placement.too_few_devices:
        finding = Finding(where="devices", reference="", candidate=why, labels=("", ""))
        unable = ChannelResult(
            name="tree", verdict=Verdict.ERROR, detail="cannot run here", findings=(finding,)
        )
        return _not_compared(case, unable)
    start = time.perf_counter()
    session.clock.take()
    results: dict[str, ChannelResult] = {}
    names = ("", "")
    try:
        with raised_gc_threshold():
            with session.clock.book("build"):
                work = Evidence.of(case, session, channels)
            names = (work.builds[0].name, work.builds[1].name)
            with session.clock.book("judge"):
                if any(CHANNELS[name].aspect is Aspect.VALUES for name in channels):
                    work.begin()
                judged = {name: _channel(name, work) for name in sorted(channels, key=_waits)}
            for name in channels:
                same = [other.name for other in results.values() if _same_error(other, judged[name])]
                results[name] = (
                    CHANNELS[name].skipped(f"the same error as in {same[0]}") if same else judged[name]
                )
            if "tree" not in results and any(result.detail == NO_MAP for result in results.values()):
                results["tree"] = _channel("tree", work)  # reports the leaves without a partner
    except Exception as error:
        results["tree"] = _error("tree", "comparing", error)
    results = _located(waive(case.id, results, case.accept.waivers), case, session)
    clear_caches_if_many_mappings()
    seconds = session.clock.take()
    seconds["other"] = time.perf_counter() - start - sum(seconds.values())
    return CaseResult.of(case, results, seconds, names)


def _waits(channel: str) -> bool:
    """True if a channel may read compiled programs; the others are judged first, while both sides compile."""
    return CHANNELS[channel].aspect is not Aspect.STATE


def error_result(case: Case, where: str, error: Exception) -> CaseResult:
    """Returns the result of a case whose process failed."""
    return _not_compared(case, _error("tree", where, error))


def skipped_result(case: Case, why: str) -> CaseResult:
    """Returns the result of a case that cannot run here."""
    return _not_compared(case, *(CHANNELS[name].skipped(why) for name in ALL))


def _not_compared(case: Case, *results: ChannelResult) -> CaseResult:
    channels = {result.name: result for result in results}
    return CaseResult.of(case, channels, dict.fromkeys((*PHASES, "other"), 0.0))


def _located(results: dict[str, ChannelResult], case: Case, session: Session) -> dict[str, ChannelResult]:
    """Returns the results; if the proof does not place a failure of numbers, with the place by values."""
    channel = unplaced(results)
    if channel is None or jax.process_count() > 1:
        return results
    from parity.compare.origin.operation import locate  # few runs need it

    first = next((one for one in channel.findings[:1] if ELSEWHERE.isdisjoint(one.doubts)), None)
    changed: dict[str, Any] = {}
    try:
        with session.clock.book("judge"), session.clock.limit(SEARCH_SECONDS):
            found = locate(case, session, blocking(results.values())[0].name)
    except Exception as error:
        changed["notes"] = (error_finding("search for the place by values", error), *channel.notes)
    else:
        lines, own = (innermost(one) if one else [] for one in (found.finding, first))
        chosen = first is not None and first.cause in (SETTING, LEFT_OUT) and not found.found
        if found.finding is None or not (found.found or lines):
            return results
        if first and (chosen or (lines == own if found.found else set(lines) <= set(own))):  # both agree
            shown = dataclasses.replace(_with_callers(first, found.finding), doubts=(), next_step="")
            changed["findings"] = (shown, *channel.findings[1:])
        else:
            where = f"values of one batch differ first at {found.finding.where}"
            doubt = "" if found.found else f"not sure of the cause, {found.facts['doubt']}"
            changed["located"] = dataclasses.replace(found.finding, where=where, next_step=doubt)
    return {**results, channel.name: dataclasses.replace(channel, **changed)}


def _with_callers(shown: Finding, found: Finding) -> Finding:
    """Returns a finding with the callers and makers that another one of the same lines names."""
    texts = {}
    for side in SIDES:
        own = getattr(shown, side)
        line, *more = re.split(r"(?=, (?:called at|with a constant from) )", getattr(found, side))
        texts[side] = f"{own}{''.join(more)}" if line and own.endswith(line) else own
    return dataclasses.replace(shown, **texts)


def _same_error(one: ChannelResult, other: ChannelResult) -> bool:
    errors = one.verdict is other.verdict is Verdict.ERROR
    return errors and one.findings[0].candidate == other.findings[0].candidate


def _channel(name: str, work: Evidence) -> ChannelResult:
    try:
        return CHANNELS[name].look(work)
    except MapError:
        return CHANNELS[name].skipped(NO_MAP)
    except Exception as error:
        return _error(name, "comparing", error)


def _error(name: str, where: str, error: Exception) -> ChannelResult:
    if isinstance(error, SideError):
        where, error = f"{error.build}, {error.phase}", error.cause
    finding = error_finding(where, error)
    return ChannelResult(name=name, verdict=Verdict.ERROR, detail=type(error).__name__, findings=(finding,))


def error_finding(where: str, error: BaseException) -> Finding:
    """Returns a finding on an exception."""
    message = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if len(message) > LONGEST:
        message = f"{message[:LONGEST]} ... (the JSON report has the rest)"
    return Finding(
        where=where,
        reference="",
        candidate=f"{type(error).__name__}: {message}",
        next_step=_place(error),
        labels=("", ""),
        traceback="".join(traceback.format_exception(error)),
    )


def _place(error: BaseException) -> str:
    """Returns the user's innermost line, with that of a library that the case may compare, and the caller's file."""
    frames = [
        Frame(frame.filename, frame.lineno or 0, frame.name)
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    right = [frame for frame in frames if is_users(frame.file)]
    if not right:
        return ""
    code = linecache.getline(right[-1].file, right[-1].line).strip()
    inner = [f", through {frame}" for frame in frames[frames.index(right[-1]) :] if frame.may_be_compared]
    callers = [f", called at {frame}" for frame in right if frame.file != right[-1].file]
    return f"raised below {right[-1]}{''.join(inner[-1:] + callers[-1:])}: {code}"


def case_runner(
    request: Request, backend: Backend | None = None, *, on_phase: Callable[[str], None] = lambda phase: None
) -> Callable[[Case], CaseResult]:
    """Returns a function that runs a case in this process with the options of a request; its cases share one session.

    Args:
        backend: on which the cases are placed; by default the one that the request names.
        on_phase: called with each phase that begins, as text.
    """
    session = request.open_session(backend or request.find_backend(), on_phase)

    def run(case: Case) -> CaseResult:
        result = run_case(case, session, request.channels)
        return dataclasses.replace(result, read=opened(request.watched)) if request.watched else result

    return run
