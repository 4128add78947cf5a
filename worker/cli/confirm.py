"""`spool-worker confirm`: runs the steps of `worker.diagnostics.confirm` and writes the report."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from spool.errors import InvalidRequest

if TYPE_CHECKING:
    from spool.domain.fleet.quality import Quality
    from spool.settings import Settings
    from worker.diagnostics.confirm.report import Step

DTYPES = ("default", "float32", "float16", "bfloat16", "int8")


def confirm(
    *,
    model: Annotated[
        str, Parameter(help="Name of a model in the settings, or a path. Default: the default model.")
    ] = "",
    minutes: Annotated[
        float, Parameter(validator=Number(gte=0.05), help="Minutes to watch memory for.")
    ] = 60,
    rounds: Annotated[
        int, Parameter(validator=Number(gte=1), help="Number of times each batch is timed.")
    ] = 3,
    sleep: Annotated[
        bool, Parameter(help="Ask for this Mac to be put to sleep and woken.", negative_bool="no-")
    ] = True,
    only: Annotated[list[str] | None, Parameter(help="Run only this step; repeat for several.")] = None,
    folder: Annotated[Path, Parameter(help="Folder for the report.")] = Path("."),
    quality: Annotated[
        bool, Parameter(help="Measure the model's quality of inference here, and nothing else.")
    ] = False,
    against: Annotated[
        str, Parameter(help="With --quality: the model whose float32 words are the reference.")
    ] = "",
    dtype: Annotated[
        str,
        Parameter(help="With --quality: float32, float16, bfloat16 or int8; default: what a worker uses."),
    ] = "default",
    recordings: Annotated[
        int,
        Parameter(
            validator=Number(gte=0), help="With --quality: use only this many, without reporting it. 0: all."
        ),
    ] = 0,
) -> None:
    """Test on this machine what Spool's own tests cannot: kernels, parity, words, speed, memory, crashes and
    sleep.

    Writes confirm-….json and .md; exit code 1 if anything differs. With --quality: prints the share of
    recordings that are no worse than in float32, of the model and of those in the model store that were
    quantised from it. The worker with this home then reports it, and does not use a model below
    SPOOL_MIN_QOI. Exit code 1 if the model is below it.
    """
    from spool.logs import configure_logs
    from spool.settings import load_settings
    from worker.diagnostics.confirm.report import Result, new_report, write_report
    from worker.diagnostics.confirm.report import confirm as run_steps

    settings = load_settings()
    configure_logs(settings.log_json)
    name = model or settings.default_model
    place = settings.models.get(name, name)
    if quality:
        _measure_quality(settings, name, place, against, dtype, recordings)
        return
    steps = _steps(settings, place, minutes, rounds, sleep=sleep)
    unknown = sorted(set(only or ()) - {step.name for step in steps})
    if unknown:
        raise InvalidRequest(
            f"no step named {', '.join(unknown)}; the steps are {', '.join(step.name for step in steps)}"
        )
    report = new_report()
    for state in run_steps(report, [step for step in steps if not only or step.name in only]):
        if isinstance(state, Result):
            print(f"{state.verdict:<17} {state.name:<8} {state.actual} ({state.seconds:.0f} s)")
        else:
            print(f"{'…':<17} {state.name:<8} {state.expected}", file=sys.stderr)
    written = write_report(report, folder)
    print(f"\nThe report: {written[0]} and {written[1].name}")
    if report.differs:
        raise SystemExit(1)


def _steps(settings: "Settings", place: str, minutes: float, rounds: int, *, sleep: bool) -> "list[Step]":
    from worker.diagnostics.confirm import engine
    from worker.diagnostics.confirm import steps as confirm_steps
    from worker.diagnostics.confirm.report import Step, StepOutcome

    demo = str(confirm_steps.ROOT / "models" / "demo")

    def run_sleep() -> StepOutcome:
        if not sleep:
            return StepOutcome("not possible here", "skipped by --no-sleep")
        return engine.sleep(settings, place, lambda text: print(text, file=sys.stderr))

    return [
        Step("machine", "an Apple GPU; nothing fails", lambda: confirm_steps.machine(settings)),
        Step("kernels", "every kernel compiles and equals its reference", confirm_steps.kernels),
        Step("parity", "on the golden files, MLX agrees with NeMo", confirm_steps.parity),
        Step("samples", "at most one word in 200 differs", lambda: confirm_steps.samples(demo)),
        Step("speed", "5 to 100 % of the roofline", lambda: confirm_steps.speed(place, rounds)),
        Step("memory", "constant", lambda: engine.memory(settings, place, minutes)),
        Step(
            "crashes",
            "one restart for each crash, every utterance answered",
            lambda: engine.crashes(settings, place),
        ),
        Step("sleep", "the same words afterwards", run_sleep),
    ]


def _measure_quality(
    settings: "Settings", name: str, place: str, against: str, dtype: str, recordings: int
) -> None:
    from worker.diagnostics.confirm import quality

    if dtype not in DTYPES:
        raise InvalidRequest(f"{dtype!r} is not one of {', '.join(DTYPES)}")
    names = {Path(each).name: known for known, each in settings.models.items()}
    made = {names.get(each, each): each for each in quality.find_quantised(place) if not against}
    try:
        known = quality.spoken_words()
        spoken = quality.spread(known, recordings or len(known))
        original = settings.models.get(against, against) or quality.original_of(place)
        reference = quality.listen_reference(original, spoken, _progress)
        for each, path in {name: place, **made}.items():
            measured, outcome = quality.compare_with(reference, path, dtype, spoken, _progress)
            print("\n  ".join([f"{each}: {outcome.actual}", *outcome.details]))
            _report_quality(settings, each, measured, kept=dtype == "default" and not recordings)
            if each == name:
                passed = measured.qoi >= settings.min_qoi
    except InvalidRequest as error:
        print(error.message, file=sys.stderr)
        raise SystemExit(1) from error
    if not passed:
        raise SystemExit(1)


def _report_quality(settings: "Settings", name: str, measured: "Quality", *, kept: bool) -> None:
    from spool.domain.fleet.quality import INT8
    from worker.models.quality import write_quality

    if name in settings.models and kept:
        write_quality(settings.home, name, measured)
        print(f"\nThe worker with the home {settings.home} reports it from its next heartbeat on.")
    if measured.qoi < settings.min_qoi:
        refused = f"{name} computes in float32" if measured.dtype == INT8 else f"{name} is not used"
        print(f"{refused}: its QoI is below SPOOL_MIN_QOI={settings.min_qoi:g}.")


def _progress(line: str) -> None:
    print(line, file=sys.stderr)
