"""Law: however a shell is made to run a denied command, the policy denies it or asks.

Every wrapping here is a real one: a shell runs it, in a folder of its own, and the denied program (a stub) proves that it
was run. Wrappings are put into one another at random.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.config.policy import read_policy
from dragoman.engine.approval import Policy, PolicyDecision, Subject

DENIED = "denied --all x"
SECONDS = 60

# C: the command. Q: the same in quotes. D: the same for double quotes.
WRAPPINGS: tuple[str, ...] = (
    "C", " C ", "C;", "C &\nwait", "true; C", "true && C", "false || C", "true | C", "! C", "true\nC", "{ C; }", "(C)", "( (C) )",
    "if true; then C; fi", "if C; then true; fi", "if false; then :; elif C; then :; fi", "if false; then :; else C; fi",
    "if\ntrue\nthen\nC\nfi", "while C; do break; done", "until ! C; do break; done", "while true; do C; break; done",
    "for x in 1; do C; done", "for x in 1\ndo\nC\ndone", "set -- 1; for x do C; done", "for ((i=0; i<1; i++)); do C; done",
    "for ((i=0; i<1; i++)) { C; }",
    "select x in 1; do C; break; done <<< 1", "case 1 in 1) C;; esac", "case 1 in (1) C;; esac", "case 1 in 0) :;; 1) C; esac",
    "case 1 in 1)\nC\n;;\nesac", "case 1 in 0) : ;& 1) C;; esac", "echo $(case 1 in 1) C;; esac)",
    "coproc C\nwait", "coproc name { C; }\nwait", "time C", "time -p C", "{ time C; } 2>/dev/null", "exec C", "command C",
    "command -p -- env C", "(exec -a other C)", "eval C", "eval Q", 'eval "D"', "eval ' ' Q", "builtin eval Q", "eval -- Q",
    "env C", "env -i PATH=$PATH DENIED_MARK=$DENIED_MARK C", "env A=b C", "env -u A C", "env -S Q", "env --split-string=Q", "nohup C", "nice C", "nice -n 5 C",
    "timeout 5 C", "timeout -s KILL 5 C", "setsid -w C", "stdbuf -o0 C", "ionice C", "flock lock C", "flock lock -c Q",
    "echo x | xargs C", "echo x | xargs -I {} C", "echo x | xargs -n 1 C", "echo x | xargs -I {} sh -c Q", "echo Q | xargs -I {} sh -c {}",
    "echo Q | xargs env", "echo x | xargs -P 2 -n1 -- C", "xargs -a file C",
    "echo $(C)", 'echo "$(C)"', "echo `C`", 'echo "`C`"', "x=$(C)", "x=$(C) true", "local_=`C`", 'x="a$(C)b"', "a=($(C))", "echo ${x:-$(C)}",
    'echo "${x:-`C`}"', "echo ${x:=$(C)}", "echo $(( $(C; echo 1) + 1 ))", "echo $[ $(C; echo 1) ]", "(( $(C; echo 1) ))",
    "[[ -n $(C) ]]", "[[ -n a && -z $(C) ]]", "[ -n \"$(C)\" ]", "cat <(C)", "{ true > >(C); } | cat", "cat < <(C)", "echo $(echo $(C))",
    "echo \"$(echo \"$(C)\")\"", "echo $(echo `C`)", "cat <<< $(C)", "cat <<END\n$(C)\nEND", "cat <<END\n`C`\nEND", "cat <<-END\n\t$(C)\n\tEND",
    "bash -c Q", "sh -c Q", "/bin/bash -c Q", "bash -ec Q", "bash -c -e Q", "bash -o posix -c Q", "bash --norc -c Q", "env bash -c Q",
    "bash -c 'eval \"$1\"' _ Q", "bash -c '\"$@\"' _ C", "bash -c '$0 --all x' denied", "bash <<END\nC\nEND", "bash <<'END'\nC\nEND",
    "sh -s <<END\nC\nEND", "cat <<'END' | sh\nC\nEND", "echo Q | sh", "echo Q | bash -", "bash <<< Q", "printf %s Q | bash -s",
    "echo Q > script; bash script", "echo Q > script; . ./script", "echo Q > script; source ./script", "echo Q > script; sh ./script",
    "echo Q > script; chmod +x script; ./script", "bash <(echo Q)", ". <(echo Q)", "echo Q > script; BASH_ENV=script bash -c true",
    "find . -maxdepth 0 -exec C \\;", "find . -maxdepth 0 -exec C {} +", "find . -maxdepth 0 -exec sh -c Q \\;",
    "find . -maxdepth 0 -execdir C ';'", "find . -maxdepth 0 -exec env C \\;",
    "f() { C; }; f", "f() (C); f", "function f { C; }; f", "function f() { C; }; f", "f()\n{\nC\n}\nf", "f() if true; then C; fi; f",
    "f() { \"$@\"; }; f C", "ls() { C; }; ls", "shopt -s expand_aliases\nalias a=Q\na", "trap Q EXIT", "trap \"D\" EXIT", "trap Q DEBUG; true",
    "x=denied; $x --all x", "x=Q; $x", "x=Q; eval \"$x\"", "x=den; y=ied; $x$y x", "x=nied; de$x x", "set -- C; \"$@\"", "set -- C; $@", "a=(C); \"${a[@]}\"",
    "x=denied; y=x; ${!y} x", "IFS=,; x=denied,--all; $x", "read -r x <<< Q; $x", "x=$'\\x64enied'; $x x", "$'\\x64enied' x", "$'denied' x", '$"denied" x',
    "d'e'nied x", "d\"enie\"d x", "'denied' x", "\"denied\" x", "\\denied x", "den\\ied x", "den\\\nied x", "{denied,--all,x}", "denie{d,} x", "{den,}ied x",
    "x=xdenied; ${x#x} y", "x=DENIED; ${x,,} y", "${x:-denied} y", "$(echo denied) y", "`echo denied` y", "$(echo den)ied y",
    "A=b C", "A=b B=c C", "PATH=$PATH:. C", ">out C", "2>/dev/null C", "<file C", "{fd}>out C", "&>out C", "C >out 2>&1", "C <<< x",
    "x='a[$(C >&2)]'; (( x )); true", "x='a[$(C >&2)]'; echo $((x))", "x='a[$(C >&2)]'; [[ $x -eq 0 ]]", "x='a[$(C >&2)]'; let y=x", "x='$(C)'; echo \"${x@P}\"",
    "x='a[$(C >&2)]'; declare -i y=x", "x='a[$(C >&2)0]'; printf -v \"$x\" 1", "x='a[$(C >&2)]'; test -v \"$x\"", "x='a[$(C >&2)]'; y=abc; echo ${y:x}",
    "PS4='$(C >&2)'; set -x; true", "hash -p $(command -v denied) ls; ls", "mapfile -C Q -c 1 a < file", "compgen -C Q", "complete -C Q a; compgen -C Q b",
    "# words\nC", "true # words\nC", "echo '#'; C", "echo a\\#b; C", "echo \\'; C", "echo '\\'; C", "echo \"\\\"\"; C", "echo \"'\"; C", "echo $'\\''; C",
    "echo a;C", "echo a&&C", "echo a|C", "true|&C", "C|cat", "(C)|cat", "{ C;}|cat", "!  C", "echo ${x//'}'/}; C",
    "\\\n C", "\\\n! C", ">out [[ if\nC", "echo `echo \\\"; C \\\"`", "sh -c '[[ x || C ]]'", "sh -c '[[ x || env C ]]'", "[[ x =~ (#) ]]; C\n)",
    "x='a[$(C >&2)]'; [[ a && x -eq 0 ]]", "x='a[$(C >&2)]'; [[ \"]]\" != a && x -eq 0 ]]",
    "echo \"$(case x in a) ;; case) ;; esac)\"; C \"; esac)\"", "eval env --split-string=Q", "env -Sdenied x",
    "git -c alias.x='!C' x", "tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec=Q file",
    "awk 'BEGIN { system(\"D\") }'", "perl -e 'system(\"D\")'", "python3 -c 'import os; os.system(\"D\")'", "sed '1e C' file", "sed -n '1{e C\n}' file",
    "cp $(command -v denied) x; ./x", "ln -s $(command -v denied) y; ./y", "cp $(command -v denied) x; PATH=.:$PATH; x",
    "find . -maxdepth 0 " + "-name x -o " * 20 + "-exec C \\;", "find . -maxdepth 0 -exec echo " + "x " * 40 + "\\; -exec C \\;", "jobs -x C",
    "sed --expression='1e C' file", "sed --expr='1e C' file", "sed -ne'1e C' file", "sed -nee\\ denied file",
    "sed '1edenied' file", "sed '/x/edenied' file", "sed -n '\\,x,edenied' file", "sed '$!{p\n}\n1 \te denied' file", "sed -needenied file", "!\\\n C", "cat <<E\n`echo \\\"; C \\\"`\nE",
    "sed -inex '1edenied' file", "if false; then :; el\\\nse C; fi",
    "env --split-string='a-b= C'", "env --sp 'a-b= C'", "nice env --sp 'a-b= C'", "cat ${x:-<(C)}", "echo ${x:-`echo \\\"; C \\\"`}", "cat <<END\n$\\\n(C)\nEND", "cat <<END\\\n\n$(C)\nEND", "echo \"$\\\n(C)\"",
    "x='a[$(C >&2)]'; [[ a && x -\\\neq 0 ]]", "echo Q | nice xargs env", "echo Q | time xargs env xargs env", "dash -c 'true &>out C'",
    "dash -c \"echo \\$'a\\\\'; C #'\"",
    "sed 'sqxqdenied yqe' file", "echo '1e C' > script; sed --fil=script file", "echo '1e C' > script; sed -nfscript file",
    "tar -cf /dev/null --checkpoint=1 --checkpoint-act=exec=Q file", "tar -cIdenied -f x.tar file", "tar --use=denied -cf x.tar file",
    "sort --compress-prog=denied -S 1k --parallel=1 big > /dev/null", "git init -q r; git clone -q -u denied r x",
    "git init -q; git init -q r; git fetch -q --upload-pac=denied ./r", "git init -q r; git clone -q -ccore.fsmonitor=denied r x; cd x; git status",
    "script -qc \"deni''ed\" /dev/null < /dev/null", "echo \"$(set -- 1; for x do case 1 in 1) C;; esac; done)\"", "echo \"$(coproc case 1 in 1) C;; esac; wait)\"",
    "nice env --sp 'a-b= tar' -cf /dev/null --checkpoint=1 --checkpoint-act=exec=Q file",
    "echo \"$(function f { case 1 in 1) C;; esac; }; f)\"", "echo \"$(" + "{ " * 40 + "case 1 in 1) C;; esac; " + "}; " * 40 + ")\"",
    "cat <<END\\\n\n$(trap \"x='a[\\$(C >&2)]'; [[ a && x -\\\\\neq 0 ]]\" EXIT)\nEND", "env -vS'C'", "env --split-string=sed -n '\\,x,edenied' file", "script -qc'C' /dev/null < /dev/null", "trap -- Q EXIT", "watch -g -t \"deni''ed\" --all x < /dev/null & sleep 0.2; kill $!", "cp $(type -P denied) x; env PATH=. x",
    "cp $(type -P denied) x; read PATH <<< .; x", "cp $(type -P denied) x; for PATH in $PWD; do x; done",
    "cp $(type -P denied) x; unset PATH; : ${PATH:=.}; x", "mkdir 10; cp $(type -P denied) 10/x; exec {PATH}>/dev/null; x",
    "split --filter=Q file", "sort --compress-program=denied -S 1k --parallel=1 big > /dev/null", "script -qc Q /dev/null < /dev/null",
    "watch -g -t Q < /dev/null & sleep 0.2; kill $!", "echo x | tee >(C) | cat", "exec 3< <(C); cat <&3", "unshare true; C",
)  # fmt: skip

POLICIES = {
    "all but": 'allow = ["shell"]\ndeny = ["shell: denied*"]',
    "all but, by default": 'default = "allow"\ndeny = ["shell: denied*"]',
    "all but, by a star": 'allow = ["shell: *"]\ndeny = ["shell: denied", "shell: denied *"]',
    "asked for": 'allow = ["shell"]\nask = ["shell: denied*"]',
}


def wrap(wrapping: str, command: str) -> str:
    doubled = "".join(f"\\{char}" if char in '"\\$`' else char for char in command)
    # Placeholders stand alone: no other word of a wrapping is one of these letters.
    pieces: list[str] = []
    for at, char in enumerate(wrapping):
        before, after = wrapping[at - 1 : at] or " ", wrapping[at + 1 : at + 2] or " "
        is_alone = not (before.isalnum() or before in "-_$") and not (
            after.isalnum() or after in "_="
        )
        replaced = (
            {"C": command, "Q": shlex.quote(command), "D": doubled}.get(char) if is_alone else None
        )
        pieces.append(char if replaced is None else replaced)
    return "".join(pieces)


@pytest.fixture(scope="module")
def workshop() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dragoman-deny-"))
    programs = folder / "bin"
    programs.mkdir()
    stub = programs / "denied"
    stub.write_text('#!/bin/sh\n: > "$DENIED_MARK"\nexit 0\n', encoding="utf-8")
    stub.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def is_run(command: str, workshop: Path) -> bool:
    """Whether a shell that is given this runs the denied program."""
    folder = Path(tempfile.mkdtemp(dir=workshop))
    mark = workshop / f"{folder.name}.mark"
    (folder / "file").write_text("x\n", encoding="utf-8")
    (folder / "big").write_text(
        "".join(f"{n % 97} {'y' * 60}\n" for n in range(2000)), encoding="utf-8"
    )
    environment = {
        "PATH": f"{workshop / 'bin'}:{os.environ['PATH']}",
        "DENIED_MARK": str(mark),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "TERM": "dumb",
    }
    subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=SECONDS,
        check=False,
        start_new_session=True,
    )
    shutil.rmtree(folder, ignore_errors=True)
    was_run = mark.exists()
    mark.unlink(missing_ok=True)
    return was_run


def judge(policy: Policy, command: str) -> PolicyDecision:
    return policy.judge("shell", [Subject("command", command)])


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_no_wrapping_of_a_denied_command_is_allowed(wrapping: str, workshop: Path) -> None:
    command = wrap(wrapping, DENIED)
    assert is_run(command, workshop), f"this wrapping runs nothing:\n{command}"
    for name, source in POLICIES.items():
        assert judge(read_policy(source), command).verdict != "allow", (name, command)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.sampled_from(WRAPPINGS), min_size=2, max_size=3))
def test_no_wrapping_of_wrappings_is_allowed(workshop: Path, wrappings: list[str]) -> None:
    command = DENIED
    for wrapping in wrappings:
        command = wrap(wrapping, command)
    allowed = [
        name
        for name, source in POLICIES.items()
        if judge(read_policy(source), command).verdict == "allow"
    ]
    # One that the policy allows must not run it; what it asks for need not be tried.
    assert not allowed or not is_run(command, workshop), (allowed, command)
