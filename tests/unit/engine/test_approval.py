"""The policy: who wins, what a pattern covers, what a compound command is, and what a file may not say."""

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.config.policy import read_policy
from dragoman.engine.approval import Policy, Rule, Subject, Verdict
from dragoman.engine.commands import command_text, find_commands, is_compound
from dragoman.engine.globs import path_glob, text_glob
from dragoman.errors import ConfigError

POLICY = read_policy(
    """
    allow = ["read", "write: src/**", "edit: *.md", "shell: git status*", "shell: ls", "shell: make && make test", "docs__*"]
    ask = ["shell: git push*", "read: secrets/**"]
    deny = ["shell: rm *", "shell: rm", "write: **/.env", "write: .git/", "mcp__mail__*", "shell: curl *"]
    """
)


def command(text: str) -> Verdict:
    return POLICY.judge("shell", [Subject("command", text)]).verdict


def path(tool: str, text: str) -> Verdict:
    return POLICY.judge(tool, [Subject("path", text)]).verdict


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("git status", "allow"),
        ("git status --short", "allow"),
        ("  git status  ", "allow"),
        ("git status 'a;b'", "allow"),
        ("git status; rm x", "deny"),
        ("git status; touch x", "ask"),
        ("git status && touch x", "ask"),
        ("git status | tee x", "ask"),
        ("git status > x", "ask"),
        ("git status $(touch x)", "ask"),
        ('git status "$(touch x)"', "ask"),
        ("git status `touch x`", "ask"),
        ("git status\ntouch x", "ask"),
        ("git status & touch x", "ask"),
        ("git status <(touch x)", "ask"),
        ("git status ${x@P}", "ask"),
        ("git status $'\\n'", "ask"),
        ("git status 'open", "ask"),
        ("git status \\\ntouch", "ask"),
        ("ls", "allow"),
        ("ls -la", "ask"),
        ("make && make test", "allow"),
        ("make && make test && x", "ask"),
        ("git push origin", "ask"),
        ("rm x", "deny"),
        ("rm", "deny"),
        ("cd a && rm -rf b", "deny"),
        ("sudo rm x", "deny"),
        ("FOO=1 rm x", "deny"),
        ("/bin/rm x", "deny"),
        ("bash -c 'ls; rm x'", "deny"),
        ('echo "$(rm x)"', "deny"),
        ("echo `rm x`", "deny"),
        ("true|rm x", "deny"),
        ("(rm x)", "deny"),
        ("echo x | xargs rm -f", "deny"),
        ("fdfind . -x rm", "deny"),
        ("find . " + "-name a -o " * 30 + "-exec rm x ;", "deny"),
        ("trap -- 'rm x' EXIT", "deny"),
        ("watch -n 5 \"r''m\" x", "deny"),
        ("nice parallel -j4 'r\\m' x", "deny"),
        ("uv run rm x", "deny"),
        ("env -iS'rm x'", "deny"),
        ("script -qc'rm x' /dev/null", "deny"),
        ("split --fil=rm file", "deny"),
        ("touch x", "ask"),
    ],
)
def test_commands_are_judged(text: str, verdict: Verdict) -> None:
    assert command(text) == verdict


@pytest.mark.parametrize(
    ("tool", "text", "verdict"),
    [
        ("write", "src/a/b.py", "allow"),
        ("write", "other/b.py", "ask"),
        ("write", "src/.env", "deny"),
        ("write", ".env", "deny"),
        ("edit", "src/.env", "deny"),
        ("edit", "src/.Env", "deny"),
        ("write", "SRC/a/b.py", "ask"),
        ("apply_patch", ".git/config", "deny"),
        ("edit", "docs/a.md", "allow"),
        ("write", "docs/a.md", "ask"),
        ("edit", "src/a.py", "allow"),
        ("read", "anything", "allow"),
        ("read", "secrets/x", "ask"),
        ("grep", "anything", "allow"),
        ("mcp__mail__send", "", "deny"),
        ("mail__send", "", "deny"),
        ("docs__search", "", "allow"),
        ("other", "", "ask"),
    ],
)
def test_paths_and_other_tools_are_judged(tool: str, text: str, verdict: Verdict) -> None:
    assert path(tool, text) == verdict


def test_the_strictest_word_on_any_subject_counts() -> None:
    subjects = [Subject("path", "src/a"), Subject("path", "other")]
    assert POLICY.judge("write", subjects).verdict == "ask"
    judgement = POLICY.judge("write", [*subjects, Subject("path", "x/.env")])
    assert judgement.verdict == "deny"
    assert str(judgement.rule) == "write: **/.env"


def test_an_empty_policy_lets_read_and_asks_for_the_rest() -> None:
    policy = Policy()
    assert policy.judge("read", []).verdict == "allow"
    assert policy.judge("glob", []).verdict == "allow"
    assert policy.judge("shell", []).verdict == "ask"
    assert read_policy('default = "deny"').judge("write", []).verdict == "deny"
    assert read_policy('default = "deny"').judge("read", []).verdict == "allow"


def test_a_rule_for_a_whole_tool_allows_compound_commands_too() -> None:
    for rule in ("shell", "shell: *"):
        policy = read_policy(f'allow = ["{rule}"]')
        assert policy.judge("shell", [Subject("command", "a; b | c")]).verdict == "allow"
        assert policy.judge("local_shell", [Subject("command", "a")]).verdict == "allow"


def test_arguments_of_other_tools_are_matched_as_they_came() -> None:
    policy = read_policy("""allow = ['fetch: {"url":"https://example.com/*']""")
    assert (
        policy.judge("fetch", [Subject("input", '{"url":"https://example.com/a"}')]).verdict
        == "allow"
    )
    assert policy.judge("fetch", [Subject("input", '{"url":"https://evil.com/"}')]).verdict == "ask"


def test_rules_that_name_no_tool_can_be_reported() -> None:
    assert POLICY.unused(["shell", "read", "write", "edit", "mcp__mail__send"]) == (
        Rule("docs__*"),
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("allow = [", "expected TOML"),
        ("alow = []", "did you mean `allow`?"),
        ("[shell]\nallow = []", "shell: unknown key"),
        ('allow = "read"', "expected a list"),
        ("allow = [3]", "allow[0]"),
        ('deny = ["shell: "]', "deny[0]"),
        ('deny = [": rm"]', "deny[0]"),
        ('deny = ["shel: rm *"]', "did you mean shell?"),
        ('deny = ["writ"]', "did you mean write?"),
        ('default = "perhaps"', '"allow", "ask", "deny"'),
        ("default = 3", "default: expected"),
        (f'deny = ["shell: {"x" * 2000}"]', "at most"),
        (f'deny = ["shell: {"{a,b}" * 10}"]', "choices"),
        (f"deny = {['a'] * 2000}", "at most 1000 rules"),
    ],
)
def test_a_file_that_says_something_else_is_refused(source: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_policy(source, "policy.toml")
    assert words in caught.value.message
    assert "policy.toml" in caught.value.message


def test_the_name_of_another_tool_is_no_slip() -> None:
    assert read_policy('deny = ["reader", "my_shell_tool"]').deny == (
        Rule("reader"), Rule("my_shell_tool"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "ls -la",
        "echo $HOME",
        "ls *.py",
        "for file in *.py; do wc -l $file; done",
        "cd src && pytest -q | tail -3",
        'git commit -m "$message"',
        "git switch -c new",
        "git rm x",
        "grep -rn 'rm x' .",
        "cat <<END > file\nrm -rf /\nEND",
        "cat <<'END'\n$(rm x)\nEND",
        "sed -n '1,20p' file",
        "sed -e 's/x/y/' file",
        "find . -name '*.py' | xargs wc -l",
        "find . -name x -exec cat {} \\;",
        "diff <(ls) <(ls -a)",
        "mkdir -p a/{b,c}",
        "if [ -f x ]; then cat x; fi",
        "[[ -f x && -n $y ]] && echo yes",
        "case $1 in a) ls;; b) cat x;; esac",
        "while read -r line; do echo $line; done < file",
        "timeout 60 pytest",
        "env A=1 pytest",
        "uv run pytest -q --cov=src/a --maxfail=1 tests/x.py",
        "timeout 60 ruff check --fix .",
        "sudo docker run --rm -it image ls",
        "watch -n 5 ls -l",
        "ls | parallel gzip {}",
        "trap - EXIT",
        "set -euo pipefail; ls",
        "echo 'rm x'",
        "# rm x\nls",
        "echo $((1 + 2))",
    ],
)
def test_what_can_be_seen_is_allowed_although_something_is_denied(text: str) -> None:
    """A policy that asked for everything would be turned off."""
    for source in ('allow = ["shell"]', 'default = "allow"'):
        policy = read_policy(f'{source}\ndeny = ["shell: rm *", "shell: curl*"]')
        judgement = policy.judge("shell", [Subject("command", text)])
        assert (judgement.verdict, judgement.unseen) == ("allow", "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("$x y", "the name of a command is put together when it runs: $x"),
        ("git $x", "git may run what an argument says"),
        ('eval "$x"', "evaluates a text"),
        ("echo x | sh", "a shell runs what it is given as input"),
        ("bash script", "it runs a script"),
        ("./script", "it runs a program of the folder: ./script"),
        ("python3 -c x", "python3 runs a program in a language of its own"),
        ("alias a=b", "alias may change what is run"),
        ("PATH=. ls", "it sets PATH"),
        ("export PATH=.", "it sets PATH"),
        ("env PATH=. x", "it sets PATH"),
        ("read PATH < file; x", "it sets PATH"),
        ("for PATH in .; do x; done", "it sets PATH"),
        (": ${PATH:=.}; x", "it sets PATH"),
        ("exec {PATH}> file; x", "it sets PATH"),
        ("echo x | at now", "at runs what it is given as input"),
        ("parallel -j 4 < file", "parallel runs what it is given as input"),
        ("echo x | parallel eval", "parallel gives its input to eval"),
        ("echo x | parallel 'eval {}'", "parallel may put its input into a script"),
        ("watch ls $x", "watch runs what is put together when it runs"),
        ("gdb -batch -ex 'shell x'", "gdb runs a program in a language of its own"),
        ("echo 'open", "its quotes do not match"),
        ("echo $(ls", "its brackets do not match"),
        ("( " * 40 + "ls" + " )" * 40, "it is nested too deeply"),
        ("rm$x", "the name of a command"),
        ("ls " + "a" * 140_000, "it is too long"),
    ],
)
def test_what_cannot_be_seen_is_asked_for_where_something_is_denied_and_the_reason_is_said(
    text: str, reason: str
) -> None:
    policy = read_policy('allow = ["shell"]\ndeny = ["shell: rm *"]')
    judgement = policy.judge("shell", [Subject("command", text)])
    assert (judgement.verdict, judgement.may_be_denied) == ("ask", True)
    assert reason in judgement.unseen
    # With no rule for commands there is nothing that could be missed.
    free = read_policy('allow = ["shell"]').judge("shell", [Subject("command", text)])
    assert (free.verdict, free.unseen) == ("allow", "")


def test_words_that_are_not_known_matter_where_a_rule_could_mean_them() -> None:
    policy = read_policy('allow = ["shell"]\ndeny = ["shell: make clean*"]')
    assert policy.judge("shell", [Subject("command", "make $x")]).verdict == "ask"
    assert policy.judge("shell", [Subject("command", "make test $x")]).verdict == "allow"
    assert policy.judge("shell", [Subject("command", "echo $x")]).verdict == "allow"


@pytest.mark.parametrize(
    ("rule", "text", "verdict"),
    [
        ("python3 *", "python3 -c 'print(1)'", "allow"),
        ("python3 test.py*", "python3 test.py -v", "allow"),
        ("./test.sh*", "./test.sh all", "allow"),
        ("*test*", "./test.sh all", "ask"),
        ("*test*", "$x test", "ask"),
        ("git *", "git -c alias.x='!touch y' x", "ask"),
        ("git *", "git log --oneline", "allow"),
        ("git *", "git --git-dir=other status", "ask"),
        ("git *", "git clone -qu ./program a b", "ask"),
        ("git *", "git clone --template=hooks a b", "ask"),
        ("git *", "git commit -c HEAD --template=message", "allow"),
        ("git *", "git push -u origin main", "allow"),
        ("git *", "git send-email --sendmail-cmd=./program x", "ask"),
        ("rg *", "rg --pre ./program x", "ask"),
        ("rg *", "rg --pretty --pre-glob '*.pdf' x", "allow"),
        ("curl *", "curl -sKfile x", "ask"),
        ("tar *", "tar -czf x.tar.gz --exclude=y x", "allow"),
        ("tar *", "tar --checkpoint=10 -xf x", "allow"),
        ("sed *", "sed -n --expression='s/old string/seven trees/gp' file", "allow"),
        ("sed *", "sed -n '/start/,/end/p' example.txt", "allow"),
        ("sed *", "sed -e 's/^/else /' example.txt", "allow"),
        ("sed *", "sed -i.bak -E 's/(a)/\\1e/g; $d' example.txt else.txt", "allow"),
        ("find *", "find . " + "-name a -o " * 30 + "-name b", "allow"),
        ("find *", "find . -exec echo " + "x " * 60 + ";", "ask"),
        ("bash *", 'bash -c "$x"', "ask"),
        ("bash -c $x", "bash -c $x", "allow"),
    ],
)
def test_pattern_allows_a_program_that_runs_others_if_it_names_it(
    rule: str, text: str, verdict: Verdict
) -> None:
    for more in ("", '\ndeny = ["shell: rm *"]'):
        policy = read_policy(f'allow = ["shell: {rule}"]{more}')
        assert policy.judge("shell", [Subject("command", text)]).verdict == verdict


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["git", "status"], "git status"),
        (["bash", "-lc", "ls; rm x"], "ls; rm x"),
        (["/bin/sh", "-e", "-c", "ls"], "ls"),
        (["bash", "script.sh", "-c", "x"], "bash script.sh -c x"),
        (["bash", "--norc", "-c", "x"], "x"),
        (["bash", "-c"], "bash -c"),
        (["bash", "-l"], "bash -l"),
        (["echo", "a b", ";"], "echo 'a b' ';'"),
        ([], ""),
    ],
)
def test_words_are_judged_as_one_would_type_them(argv: list[str], text: str) -> None:
    assert command_text(argv) == text


def test_what_stands_deep_within_is_looked_at_so_far() -> None:
    text = "rm x"
    for _ in range(8):
        text = f"bash -c {shlex.quote(text)}"
    assert command(text) == "ask"
    assert command("bash -c 'bash -c \"rm x\"'") == "deny"


def test_an_enormous_command_is_compound_and_looked_at_in_time() -> None:
    began = time.monotonic()
    assert is_compound("git status " + "a" * 200_000)
    for text in (
        "$(" * 10_000,
        "`" * 20_000,
        "sudo " * 5_000,
        "a;" * 10_000,
        "'" * 20_001,
        "\\" * 20_001,
        "[[ " + "a " * 60_000,
        "! " * 60_000,
        "a=b " * 30_000,
        "eval " * 25_000,
        "{}" * 60_000,
        "sudo " + "sh " * 39 + "-c 'sudo sh sh sh -c x'",
        "cat <<END\n" * 10_000,
        "xargs " * 20_000,
        "sed " + "/g" * 60_000,
        "sed '" + "\n" * 60_000 + "'",
        "sed '" + ";1s" * 40_000 + "'",
        "sed '" + ";/" * 60_000 + "'",
        "sed '" + "\\,;" * 40_000 + "'",
        "sed '" + "1" * 120_000 + "'",
        "\\" * 60_000 + "\n" * 60_000,
        "a &>b " * 20_000,
        "env -S 'a b' " * 10_000,
        "watch a " * 15_000,
        "parallel {} " * 10_000,
        "env -abcdefghij " * 8_000,
    ):
        find_commands(text)
    assert command("echo " + "a " * 10_000 + "; rm x") == "deny"
    assert command("git status " + "a" * 200_000) == "ask"
    # Work that grows with the square would take minutes.
    assert time.monotonic() - began < 60


@given(st.text(alphabet="ab '\"\\$(){}`;&|<>\n#!*~=-", max_size=30))
def test_every_text_is_looked_at_without_harm(text: str) -> None:
    is_compound(text)
    find_commands(text)
    # Nothing that a shell could split is plain.
    if not is_compound(f"git status {text}"):
        assert "\n" not in text
        assert "`" not in text.replace("\\`", "") or "'" in text


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("a*c", "abbc", True),
        ("a*c", "abbd", False),
        ("*", "", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("[]]", "]", True),
        ("[", "[", True),
        ("\\*", "*", True),
        ("\\*", "a", False),
        ("{a,b}c", "bc", True),
        ("{a,{b,c}}d", "cd", True),
        ("{a}", "{a}", True),
        ("a,b", "a,b", True),
        ("*a*b*c*", "xxaxxbxxcxx", True),
    ],
)
def test_text_patterns(pattern: str, text: str, matches: bool) -> None:
    assert text_glob(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("pattern", "path_text", "matches"),
    [
        ("src/*", "src/a", True),
        ("src/*", "src/a/b", False),
        ("src/**", "src/a/b", True),
        ("**/b", "b", True),
        ("**/b", "x/y/b", True),
        ("**/a/**/b", "x/a/y/z/b", True),
        ("**/a/**/b", "x/y/z/b", False),
        ("./src/*.py", "src/x.py", True),
        ("*", "a/b", False),
    ],
)
def test_path_patterns(pattern: str, path_text: str, matches: bool) -> None:
    assert path_glob(pattern).matches(path_text) is matches


def test_a_pattern_of_many_stars_is_matched_in_time() -> None:
    assert not text_glob("*a" * 400 + "b").matches("a" * 5000)
    assert not path_glob("**/a/" * 50 + "b").matches("a/" * 500 + "c")
