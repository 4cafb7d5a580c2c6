"""The wordings that families of models were trained on, as their published chat templates have them.

How results come back is added to each by the table of formats: a template leaves it to markup the model knows.
"""

from dragoman.textcalls.prompting.wordings import (
    Wording,
    deepseek_list,
    flat_lines,
    function_elements,
    llama_list,
    nested_lines,
    nested_list,
    react_list,
)

__all__ = (
    "ANTHROPIC",
    "DEEPSEEK_V3",
    "DEEPSEEK_V31",
    "DSML",
    "DSML_V4",
    "FUNCTIONARY",
    "GLM",
    "HERMES",
    "LLAMA_JSON",
    "MISTRAL",
    "MISTRAL_NAMED",
    "OBSIDIAN",
    "PYTHONIC",
    "QWEN_CODER",
    "REACT",
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
    nested_lines,
)

GLM = Wording(
    _SIGNATURES,
    "\n</tools>\n\nFor each function call, output the function name and arguments within the following XML format:\n"
    "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>\n"
    "<arg_key>{arg-key-2}</arg_key>\n<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>",
    nested_lines,
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
    nested_lines,
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
    function_elements,
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
        flat_lines,
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
    deepseek_list,
)

DEEPSEEK_V3 = Wording(
    _DEEPSEEK_BEFORE,
    _DEEPSEEK_ADHERE
    + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>tool_call_name\n```json\ntool_call_arguments\n```"
    "<｜tool▁call▁end｜>{{additional_tool_calls}}<｜tool▁calls▁end｜>" + _DEEPSEEK_WHERE,
    deepseek_list,
)

# In Mistral's templates the list alone stands before the last message; models not of that family need the rest.
MISTRAL = Wording(
    "[AVAILABLE_TOOLS] ",
    "[/AVAILABLE_TOOLS]\n\nTo call tools, write [TOOL_CALLS] and one JSON array of all calls, and nothing after it:\n"
    '[TOOL_CALLS] [{"name": "function_name", "arguments": {"parameter": "value"}}]',
    nested_list,
)

MISTRAL_NAMED = Wording(
    "[AVAILABLE_TOOLS] ",
    "[/AVAILABLE_TOOLS]\n\nTo call tools, write for each call [TOOL_CALLS], the name, [ARGS] and its arguments as one "
    'JSON object, and nothing after them:\n[TOOL_CALLS]function_name[ARGS]{"parameter": "value"}',
    nested_list,
)

LLAMA_JSON = Wording(
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that "
    "best answers the given prompt.\n\n"
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}. '
    "Do not use variables. A reply that calls a function contains nothing else; several calls are separated by "
    '"; ". If no function is needed, answer in words.\n\n',
    "",
    nested_lines,
)

FUNCTIONARY = Wording(
    "You have access to the following functions:\n\n",
    "\n\nThink very carefully before calling functions.\n"
    "If you choose to call a function ONLY reply in the following format with no prefix or suffix:\n\n"
    '<function=example_function_name>{"example_name": "example_value"}</function>\n\n'
    "Reminder:\n- Function calls MUST follow the specified format, start with <function= and end with </function>\n"
    "- Required parameters MUST be specified\n- Put the entire function call reply on one line",
    llama_list,
)

PYTHONIC = Wording(
    "You are given a question and a set of possible functions. Based on the question, you may need to make one or "
    "more function calls to achieve the purpose. If none of the functions can be used, answer in words.\n\n"
    "If you decide to invoke any of the functions, you MUST put it in the format of "
    "[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]\n"
    "Values are Python literals. You SHOULD NOT include any other text in a reply that calls functions.\n\n"
    "Here is a list of functions in JSON format that you can invoke.\n\n",
    "",
    nested_lines,
)

OBSIDIAN = Wording(
    "# Tools\n\nYou can use tools. To use one, write a block like this on lines of its own:\n\n"
    "<use_tool>\n<name>tool_name</name>\n<parameter_name>value</parameter_name>\n</use_tool>\n\n"
    "- Each parameter is a tag with exactly the name that the tool's schema has.\n"
    "- Texts stand in their tag as they are, without quotes or escapes; lists and objects are JSON.\n"
    "- Write no code fence around a block. Words before a block are welcome, write none after the last.\n"
    "- Several blocks in one reply use several tools.\n\nThe tools, with the JSON schemas of their parameters:\n",
    "",
    flat_lines,
)

REACT = Wording(
    "Answer the following questions as best you can. You have access to the following tools:\n\n",
    "\n\nTo use a tool, use the following format, and write nothing after the input:\n\n"
    "Thought: you should always think about what to do\nAction: the name of one of the tools\n"
    "Action Input: the input to the action, a JSON object\n\n"
    "When you need no tool any more, answer in words without an Action.",
    react_list,
)
