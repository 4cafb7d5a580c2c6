"""Reports for the tests of what is printed."""

from msgspec.structs import replace

from dragoman.inspection.report import CallReport, ChoiceReport, ProblemReport, Report
from dragoman.model.outcome import Usage

CALL = CallReport(
    id="call_1",
    name="get_weather",
    namespace=None,
    kind="function",
    arguments='{"city":"Paris"}',
    deltas=3,
    executable=True,
    reason="complete",
    choice=0,
)
CUT_CALL = replace(
    CALL, id="call_22", name="get_time", arguments='{"zo', executable=False, reason="not_closed"
)
CHOICE = ChoiceReport(index=0, text="Let me look.", finish="tool_calls")
PROBLEM = ProblemReport(frame=7, line=13, kind="cut_stream", message="expected an end, got none")
REPORT = Report(
    dialect="chat",
    form="stream",
    frames=12,
    status=None,
    response_id="chatcmpl-1",
    model="gpt-4.1",
    calls=(CALL,),
    choices=(CHOICE,),
    usage=Usage(input=1200, cached=1000, output=30, reasoning=0, total=1230),
    error=None,
    problems=(),
)
EMPTY = Report(
    dialect="messages",
    form="body",
    frames=1,
    status=None,
    response_id="",
    model="",
    calls=(),
    choices=(),
    usage=None,
    error=None,
    problems=(),
)
