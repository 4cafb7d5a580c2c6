"""The words with which a prompt describes tools and results to the model.

Families that were trained on a wording get that wording, as their published chat templates have it. The others get plain
words with an example that the format's own writer wrote. Schemas are shown as they came, on one line each. The table of
formats adds how results come back, which a template leaves to markup that the model knows.

Results are in the order of their calls. The text of a result is never changed. An error is marked in front of its text,
unless the format has a tag for errors.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from dragoman._json import dumps, dumps_text
from dragoman.core.aliases import NameLimits
from dragoman.core.pairing import mark_error
from dragoman.model.request import Tool
from dragoman.textcalls.offers import Offers
from dragoman.textcalls.prompting.writers import (
    PromptCall,
    PromptResult,
    WriteCalls,
    WriteContext,
    kimi_id,
    mistral_id,
)

_EXAMPLE = PromptCall(
    "example_function", '{"example_parameter": "a text", "another_parameter": 2}', "example00"
)
_EXAMPLE_TOOL = {
    "name": _EXAMPLE.name,
    "parameters": {
        "properties": {
            "example_parameter": {"type": "string"},
            "another_parameter": {"type": "integer"},
        }
    },
}


class Wording(Struct, frozen=True):
    """The words before the tools, and after them. show: one tool. between: the text between two tools."""

    before: str
    after: str
    show: Callable[[Tool], str]
    between: str = "\n"


def _flat(tool: Tool) -> dict[str, object]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema,
    }


def _line(value: object) -> str:
    return dumps(value).decode("utf-8")


def flat_line(tool: Tool) -> str:
    return _line(_flat(tool))


def nested_line(tool: Tool) -> str:
    """Show a tool in the form of Chat Completions, as most templates do."""
    return _line({"type": "function", "function": _flat(tool)})


def deepseek_entry(tool: Tool) -> str:
    schema = _line(tool.schema)
    return f"### {tool.name}\nDescription: {tool.description}\n\nParameters: {schema}"


def llama_entry(tool: Tool) -> str:
    return f"Use the function '{tool.name}' to '{tool.description}'\n{flat_line(tool)}"


def react_line(tool: Tool) -> str:
    schema = _line(tool.schema)
    return f"{tool.name}: {tool.description} Input: a JSON object of this schema: {schema}"


def function_element(tool: Tool) -> str:
    return f"<function>{flat_line(tool)}</function>"


def plain_wording(write_calls: WriteCalls) -> Wording:
    """In plain words, with an example."""
    example = write_calls((_EXAMPLE,), WriteContext(Offers([_EXAMPLE_TOOL])))
    # A format that is itself a code block needs no instruction to stay out of one.
    place = "" if example.startswith("```") else "outside of any code block, "
    return Wording(
        "# Tools\n\nYou can call functions to help you answer. These are the functions you have, one JSON object "
        "each, with the JSON schema of its parameters:\n<tools>\n",
        "\n</tools>\n\nTo call functions, write the calls at the end of your reply in exactly this form, "
        f"{place}and write nothing after them:\n{example}",
        flat_line,
    )


_SIGNATURES = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)

HERMES = Wording(
    _SIGNATURES,
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
    nested_line,
)

GLM = Wording(
    _SIGNATURES,
    "\n</tools>\n\nFor each function call, output the function name and arguments within the following XML format:\n"
    "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>\n"
    "<arg_key>{arg-key-2}</arg_key>\n<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>",
    nested_line,
)

QWEN_CODER = Wording(
    "# Tools\n\nYou have access to the following functions:\n\n<tools>\n",
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n"
    "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested "
    "within <tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function call, but "
    "NOT after\n- If there is no function call available, answer the question like normal with your current "
    "knowledge and do not tell the user about function calls\n</IMPORTANT>",
    nested_line,
)

_BLOCK_OF_INVOKES = "You can invoke functions by writing a {block} block like the following as part of your reply to the user:\n"

ANTHROPIC = Wording(
    "In this environment you have access to a set of tools you can use to answer the user's question.\n"
    + _BLOCK_OF_INVOKES.format(block='"<function_calls>"')
    + '<function_calls>\n<invoke name="$FUNCTION_NAME">\n'
    '<parameter name="$PARAMETER_NAME">$PARAMETER_VALUE</parameter>\n...\n</invoke>\n'
    '<invoke name="$FUNCTION_NAME2">\n...\n</invoke>\n</function_calls>\n\n'
    "String and scalar parameters should be specified as is, while lists and objects should use JSON format.\n\n"
    "Here are the functions available in JSONSchema format:\n<functions>\n",
    "\n</functions>",
    function_element,
)


def _dsml(wrapper: str) -> Wording:
    return Wording(
        "## Tools\n\nYou have access to a set of tools you can use to answer the user's question.\n"
        + _BLOCK_OF_INVOKES.format(block=f'"<｜DSML｜{wrapper}>"')
        + f'<｜DSML｜{wrapper}>\n<｜DSML｜invoke name="$FUNCTION_NAME">\n'
        '<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>\n...\n'
        '</｜DSML｜invoke>\n<｜DSML｜invoke name="$FUNCTION_NAME2">\n...\n</｜DSML｜invoke>\n'
        f"</｜DSML｜{wrapper}>\n\n"
        "String and scalar parameters should be specified as is without any escaping or quotes, while lists and "
        'objects should use JSON format. The "string" attribute should be set to "true" for string type parameters '
        'and "false" for other types (numbers, booleans, arrays, objects).\n\n'
        "Here are the functions available in JSONSchema format:\n<functions>\n",
        "\n</functions>",
        flat_line,
    )


DSML = _dsml("function_calls")
DSML_V4 = _dsml("tool_calls")

_DEEPSEEK_WHERE = (
    "\n\nWhere:\n\n- `tool_call_name` must be an exact match to one of the available tools\n"
    "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
    "- For multiple tool calls, chain them directly without separators or spaces"
)
_DEEPSEEK_BEFORE = "## Tools\nYou have access to the following tools:\n\n"
_DEEPSEEK_ADHERE = (
    "\n\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n<｜tool▁calls▁begin｜>"
)

DEEPSEEK_V31 = Wording(
    _DEEPSEEK_BEFORE,
    _DEEPSEEK_ADHERE
    + "<｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments<｜tool▁call▁end｜>"
    "{{additional_tool_calls}}<｜tool▁calls▁end｜>" + _DEEPSEEK_WHERE,
    deepseek_entry,
    "\n\n",
)

DEEPSEEK_V3 = Wording(
    _DEEPSEEK_BEFORE,
    _DEEPSEEK_ADHERE
    + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>tool_call_name\n```json\ntool_call_arguments\n```"
    "<｜tool▁call▁end｜>{{additional_tool_calls}}<｜tool▁calls▁end｜>" + _DEEPSEEK_WHERE,
    deepseek_entry,
    "\n\n",
)

# In Mistral's templates the list alone comes before the last message; models not of that family need the rest.
MISTRAL = Wording(
    "[AVAILABLE_TOOLS] [",
    "][/AVAILABLE_TOOLS]\n\nTo call tools, write [TOOL_CALLS] and one JSON array of all calls, and nothing after it:\n"
    '[TOOL_CALLS] [{"name": "function_name", "arguments": {"parameter": "value"}}]',
    nested_line,
    ",",
)

MISTRAL_NAMED = Wording(
    "[AVAILABLE_TOOLS] [",
    "][/AVAILABLE_TOOLS]\n\nTo call tools, write for each call [TOOL_CALLS], the name, [ARGS] and its arguments as one "
    'JSON object, and nothing after them:\n[TOOL_CALLS]function_name[ARGS]{"parameter": "value"}',
    nested_line,
    ",",
)

LLAMA_JSON = Wording(
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that "
    "best answers the given prompt.\n\n"
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}. '
    "Do not use variables. A reply that calls a function contains nothing else; several calls are separated by "
    '"; ". If no function is needed, answer in words.\n\n',
    "",
    nested_line,
)

FUNCTIONARY = Wording(
    "You have access to the following functions:\n\n",
    "\n\nThink very carefully before calling functions.\n"
    "If you choose to call a function ONLY reply in the following format with no prefix or suffix:\n\n"
    '<function=example_function_name>{"example_name": "example_value"}</function>\n\n'
    "Reminder:\n- Function calls MUST follow the specified format, start with <function= and end with </function>\n"
    "- Required parameters MUST be specified\n- Put the entire function call reply on one line",
    llama_entry,
    "\n\n",
)

PYTHONIC = Wording(
    "You are given a question and a set of possible functions. Based on the question, you may need to make one or "
    "more function calls to achieve the purpose. If none of the functions can be used, answer in words.\n\n"
    "If you decide to invoke any of the functions, you MUST put it in the format of "
    "[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]\n"
    "Values are Python literals. You SHOULD NOT include any other text in a reply that calls functions.\n\n"
    "Here is a list of functions in JSON format that you can invoke.\n\n",
    "",
    nested_line,
)

OBSIDIAN = Wording(
    "# Tools\n\nYou can use tools. To use one, write a block like this on lines of its own:\n\n"
    "<use_tool>\n<name>tool_name</name>\n<parameter_name>value</parameter_name>\n</use_tool>\n\n"
    "- Each parameter is a tag with exactly the name that the tool's schema has.\n"
    "- Texts stand in their tag as they are, without quotes or escapes; lists and objects are JSON.\n"
    "- Write no code fence around a block. Words before a block are welcome, write none after the last.\n"
    "- Several blocks in one reply use several tools.\n\nThe tools, with the JSON schemas of their parameters:\n",
    "",
    flat_line,
)

REACT = Wording(
    "Answer the following questions as best you can. You have access to the following tools:\n\n",
    "\n\nTo use a tool, use the following format, and write nothing after the input:\n\n"
    "Thought: you should always think about what to do\nAction: the name of one of the tools\n"
    "Action Input: the input to the action, a JSON object\n\n"
    "When you need no tool any more, answer in words without an Action.",
    react_line,
)


_NEXT = "The results come in the next message, "


class ResultForm(Struct, frozen=True):
    """How results are written.

    write: one result. ends: what a result must not contain. follow: the sentence that announces the results to the model.
    around: the text around all results. between: the text between two of them.
    """

    write: Callable[[PromptResult], str]
    ends: tuple[str, ...]
    follow: str
    around: tuple[str, str] = ("", "")
    between: str = "\n"

    def write_results(self, results: Sequence[PromptResult]) -> str:
        return self.around[0] + self.between.join(map(self.write, results)) + self.around[1]


def _shown(result: PromptResult) -> str:
    return mark_error(result.text) if result.is_error else result.text


def _quoted(result: PromptResult) -> str:
    return dumps_text(_shown(result)).decode("utf-8")


def _within(opening: str, closing: str = "") -> Callable[[PromptResult], str]:
    return lambda result: opening + _shown(result) + closing


def _function_result(result: PromptResult) -> str:
    tag = "stderr" if result.is_error else "stdout"
    name = f"<tool_name>{result.name}</tool_name>"
    return f"<result>\n{name}\n<{tag}>\n{result.text}\n</{tag}>\n</result>"


def _mistral_result(result: PromptResult) -> str:
    call_id = mistral_id(result.call_id)
    return f'[TOOL_RESULTS] {{"content": {_quoted(result)}, "call_id": "{call_id}"}}[/TOOL_RESULTS]'


def _kimi_return(result: PromptResult) -> str:
    return f"## Return of {kimi_id(result.name, result.number)}\n{_shown(result)}"


def _cohere_result(result: PromptResult) -> str:
    return (
        f'{{"tool_call_id": "{result.number}", "results": {{"0": {_quoted(result)}}}, '
        f'"is_error": {"true" if result.is_error else "null"}}}'
    )


_FUNCTION_RESULTS = ("<function_results>\n", "\n</function_results>")

TOOL_RESPONSES = ResultForm(
    _within("<tool_response>\n", "\n</tool_response>"),
    ("</tool_response>",),
    f"{_NEXT}one for each call and in the order of the calls, within <tool_response></tool_response> tags.",
)
FUNCTION_RESULTS = ResultForm(
    _function_result,
    ("</function_results>", "</result>", "</stdout>", "</stderr>"),
    f"{_NEXT}within <function_results></function_results> tags.",
    _FUNCTION_RESULTS,
)
DSML_RESULTS = ResultForm(
    _within("<result>", "</result>"),
    ("</function_results>", "</result>"),
    f"{_NEXT}within <function_results></function_results> tags, in the order of the calls.",
    _FUNCTION_RESULTS,
)
DEEPSEEK_OUTPUTS = ResultForm(
    _within("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    ("<｜tool▁output▁end｜>",),
    f"{_NEXT}one for each call and in the order of the calls.",
    between="",
)
MISTRAL_RESULTS = ResultForm(
    _mistral_result,
    (),  # JSON strings keep to themselves what they contain
    _NEXT + 'each as [TOOL_RESULTS] {"content": ..., "call_id": ...}[/TOOL_RESULTS].',
    between="",
)
KIMI_RETURNS = ResultForm(
    _kimi_return,
    ("## Return of ",),
    f"{_NEXT}each under a line with the id of its call.",
    between="\n\n",
)
COHERE_RESULTS = ResultForm(
    _cohere_result,
    (),
    f"{_NEXT}within <|START_TOOL_RESULT|><|END_TOOL_RESULT|>, each with the tool_call_id of its call.",
    ("<|START_TOOL_RESULT|>[\n", "\n]<|END_TOOL_RESULT|>"),
    ",\n",
)
OBSERVATIONS = ResultForm(
    _within("Observation: "), ("\nObservation:",), f"{_NEXT}after `Observation:`."
)


class ToolPrompt(Struct, frozen=True):
    """How one format describes tools and writes calls and results.

    wording: None explains the format in plain words.
    stops: stop sequences without which models of this format write the result themselves.
    """

    name: str
    write_calls: WriteCalls
    wording: Wording | None = None
    results: ResultForm = TOOL_RESPONSES
    names: NameLimits = NameLimits()
    stops: tuple[str, ...] = ()

    def describe_tools(self, tools: Sequence[Tool]) -> str:
        words = self.wording or plain_wording(self.write_calls)
        shown = words.between.join(map(words.show, tools))
        return f"{words.before}{shown}{words.after}\n\n{self.results.follow}"
