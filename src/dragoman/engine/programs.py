"""Known programs that run other programs, with the options and variables by which they do so, for `commands`.

Any other program is taken to run none.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash"))
# Programs that run the words after them, or a script among these words.
WRAPPERS = frozenset((
    "sudo", "doas", "su", "runuser", "env", "nohup", "exec", "command", "builtin", "time", "nice", "ionice", "chrt", "taskset",
    "setsid", "setpriv", "xargs", "parallel", "timeout", "stdbuf", "unbuffer", "chroot", "unshare", "nsenter", "flock", "watch",
    "script", "strace", "ltrace", "valgrind", "fakeroot", "bwrap", "firejail", "systemd-run", "systemd-inhibit", "busybox",
    "toybox", "coproc", "find", "fd", "entr", "xvfb-run", "dbus-run-session", "split", "at", "batch", "start-stop-daemon",
    "run-parts", "capsh", "linux32", "linux64", "setarch", "i386", "x86_64", "pkexec", "torsocks", "proxychains", "rlwrap",
    "catchsegv", "faketime", "eatmydata", "ssh-agent", "perf", "prlimit", "numactl", "cgexec", "newgrp", "sg", "jobs",
    "fdfind", "bfs", "sem", "gosu", "su-exec", "runcon", "chpst", "setuidgid", "softlimit", "envdir", "tini", "dumb-init", "proot",
    "chronic", "ifne", "cpulimit", "hyperfine", "watchexec", "sshpass", "caffeinate", "choom", "uclampset", "logsave", "pee", "torify",
    "proxychains4", "dbus-launch", "run-one", "uv", "poetry", "pipenv", "hatch", "pdm", "npx", "pnpm", "bunx", "bundle", "direnv",
))  # fmt: skip
# Programs that run a command for each file that they find: the words before the command.
_FIND = ("-exec", "-execdir", "-ok", "-okdir")
_FD = ("-x", "-X", "--exec", "--exec-batch")
SEARCHING = {"find": _FIND, "bfs": _FIND, "fd": _FD, "fdfind": _FD}
# Wrappers that join the words after them to a script, that run what they read, and that add what they read to the command.
JOINING = frozenset(("watch", "watchexec", "parallel", "sem", "hyperfine"))
READING_SCRIPTS = frozenset(("at", "batch"))
# A word after a wrapper with one of these signs may be a script, and so may the value of such a long option, which may be abbreviated.
SCRIPT_SIGNS = re.compile(r"[\s;&|`$<>(]")
_SCRIPT_OPTIONS = (
    *("command", "db-command", "exec", "filter", "run", "session-command", "shell", "split-string"),
    "startas",
)
_LETTERS = re.compile(r"-[A-Za-z]{1,8}")
GIVING_INPUT = frozenset(("xargs", "parallel"))
# Builtins that run a text as a script, and builtins that may precede another builtin.
EVALUATING = frozenset(("eval", "trap", ".", "source"))
BUILTIN_WRAPPERS = frozenset(("command", "builtin", "time", "coproc"))
REPLACES = re.compile(r"-[A-Za-z]*[iIJ]|--replace|--max-replace")
# Programs that run code in a language of their own, which may run another program.
INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|php|lua|node|tclsh|wish|expect|julia|guile|pwsh|osascript|gawk|mawk|nawk|awk)[\d.]*"
    r"|nodejs|deno|bun|luajit|R|Rscript|ghci|runghc|scala|groovy|jshell|m4|ed|ex|vi|vim|nvim|view|emacs|nano|dc|crontab|screen|tmux"
    r"|sqlite3|psql|mysql|socat|nc|ncat|less|more|man|ipython[\d.]*|cscript|irb|erl|elixir|iex|swift|ocaml|racket|sbcl|clisp"
    r"|gdb|lldb|gnuplot|octave"
)
# Words that name something for the program to run: long options, which may be abbreviated, and patterns for all others.
_LONG_OPTIONS = {
    "git": ("exec", "upload-pack", "receive-pack", "extcmd", "open-files-in-pager", "sendmail-cmd", "smtp-server"),
    "tar": ("to-command", "use-compress-program", "info-script", "new-volume-script", "rsh-command", "rmt-command"),
    "rsync": ("rsh", "rsync-path"),
    "sort": ("compress-program",),
    "zip": ("unzip-command",),
    "curl": ("config",),
    "wget": ("config", "execute", "use-askpass"),
    "sed": ("file",),
    "rg": ("pre", "hostname-bin"),
    "ag": ("pager",),
    "ack": ("pager",),
    "bat": ("pager",),
    "hg": ("config",),
    "install": ("strip-program",),
}  # fmt: skip
_OPTIONS = {
    "git": (r"-x.*|run|foreach|filter-branch|ext::.*|-O.*"
            r"|(?i:alias|core|diff|merge|filter|pager|credential|sequence|gpg|difftool"
            r"|mergetool|include\w*|remote|url|protocol|uploadpack|browser|man|web|hook)\..*"),
    "tar": r"--checkpoint-.*|-[A-Za-z]*[IF].*",
    "rsync": r"-[A-Za-z]*e.*",
    "zip": r"-[A-Za-z]*T.*",
    "ssh": r"-[A-Za-z46]*[oF].*",
    "scp": r"-[A-Za-z0-9]*[oSF].*",
    "sftp": r"-[A-Za-z0-9]*[oSFD].*",
    "curl": r"-[A-Za-z]*K.*",
    "wget": r"-[A-Za-z]*e.*",
    "sed": (
        r"(?:.*[;{}\n\d$/,!~ ])?e(?:[ ;}\n].*)?|[^-].*[^\w\s\\][gpiImMw\d]*e[gpiImMw\d]*(?:[;}\s].*)?|-[A-Za-z]*f.*"
    ),
}  # fmt: skip
_RUNNING_WORDS = {program: re.compile(pattern, re.DOTALL) for program, pattern in _OPTIONS.items()}
RUN_ARGUMENTS = frozenset((*_LONG_OPTIONS, *_OPTIONS))
# Before a script of sed: `-e`, alone or after other letters, and `--expression`.
_SED_SCRIPT = re.compile(r"-[A-Za-z]*?e|--e[a-z]*=?")
# A command of sed with its addresses: `e`, or `s` with a letter as its delimiter and `e` among its flags.
_SED_RUNS = re.compile(
    r"(?:^|[;{}\n])(?:[ \t\r\f\v\d$,!~+]|/(?:\\.|[^/\\\n])*/[IM]*|\\([^\n\\])(?:(?!\1)[^\n])*\1[IM]*)*"
    r"(?:e|s(\w)(?:(?!\2).)*\2(?:(?!\2).)*\2[gpiImMw\d]*e)",
    re.DOTALL,
)
_CLONE_SETS = re.compile(r"-\w*[uc]|--(?:c|t)")
_GIT_SETS = re.compile(r"-c|-C|--config-env|--exec-path=|--git-dir")
# Builtins that give a name another meaning, evaluate text, or run a command later.
HIDING_BUILTINS = frozenset((
    "alias", "hash", "enable", "bind", "complete", "compgen", "compopt", "fc", "history", "let", "mapfile", "readarray",
))  # fmt: skip
NAMING_BUILTINS = frozenset((
    "declare", "typeset", "local", "export", "readonly", "read", "unset", "printf", "test", "[", "getopts", "wait", "set",
))  # fmt: skip
# Variables that make a shell or a program run something, or find another program under a name.
RUNNING_VARIABLES = re.compile(
    r"PATH|LD_\w+|DYLD_\w+|BASH\w*|ENV|PS[0-4]|IFS|SHELLOPTS|PROMPT_COMMAND|SHELL|HOME|CDPATH|\w*PAGER|\w*EDITOR|VISUAL|BROWSER|GIT_\w+"
    r"|LESS\w*|MAN\w*|PYTHON\w*|PERL\w*|RUBY\w*|NODE_\w+|\w*_COMMAND|\w*_OPTIONS|\w*FLAGS|SSH_ASKPASS|SUDO_\w+|RSYNC_\w+|TAR_\w+|EXINIT"
)
SYSTEM_FOLDERS = frozenset((
    "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin",
))  # fmt: skip


def may_run_argument(base: str, arguments: Sequence[str]) -> bool:
    """Whether a program of `RUN_ARGUMENTS` may run what one of its arguments says."""
    if base == "git":
        # Options before git's own command.
        leading = takewhile(lambda text: text.startswith("-"), arguments)
        if any(map(_GIT_SETS.match, leading)) or (
            "clone" in arguments and any(map(_CLONE_SETS.match, arguments))
        ):
            return True
    if base == "tar" and re.fullmatch(r"[A-Za-z]*[IF][A-Za-z]*", "".join(arguments[:1])):
        return True  # the letters of tar without a dash
    if base == "sed":
        if any(map(_SED_RUNS.search, _scripts_of_sed(arguments))):
            return True
        arguments = [_SED_SCRIPT.sub("", text, 1) for text in arguments]
    pattern, names = _RUNNING_WORDS.get(base), _LONG_OPTIONS.get(base, ())
    for text in arguments:
        name = text[2:].partition("=")[0] if text.startswith("--") else ""
        if (name and any(each.startswith(name) for each in names)) or (
            pattern is not None and pattern.fullmatch(text)
        ):
            return True
    return False


def option_values(text: str) -> Iterator[str]:
    """What may be a script in an option of a wrapper: the value of a long one; of a short one all after any of its first letters."""
    name, _, value = text.partition("=")
    if text.startswith("--"):
        is_script = any(each.startswith(name[2:]) for each in _SCRIPT_OPTIONS)
        if value and (is_script or SCRIPT_SIGNS.search(value)):
            yield value
    elif letters := _LETTERS.match(text):
        yield from filter(None, (text[at:] for at in range(2, letters.end() + 1)))


def _scripts_of_sed(arguments: Sequence[str]) -> Iterator[str]:
    """What sed may take for a script: what an option names, else the first argument that is no option."""
    has_script = is_next = False
    for text in arguments:
        found = None if is_next else _SED_SCRIPT.match(text)
        if found is not None:
            # What follows `-i` may be a suffix for files.
            has_script = has_script or "i" not in found[0]
            is_next = found.end() == len(text) and not text.endswith("=")
            yield text[found.end() :]
        elif is_next or not (has_script or text.startswith("-")):
            has_script, is_next = True, False
            yield text
