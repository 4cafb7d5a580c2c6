"""Decides by the rules of a policy whether a call is allowed, needs approval, or is denied.

    # policy.toml
    default = "ask"
    allow = ["read", "glob", "grep", "shell: git status*", "write: src/**"]
    ask = ["shell: git push*"]
    deny = ["shell: rm *", "edit: .git/**", "mail__*"]

A rule is a tool's name, with or without wildcards, or a name and a pattern for the subject of the call: the command of a
shell, the path of a file tool, the unparsed arguments of any other tool. Tools of MCP servers are `server__tool`. A rule
for `write` also applies to `edit` and `apply_patch`. Deny wins over ask, ask over allow. Without a matching rule, tools that
only read are allowed and everything else gets `default`.

A pattern for the beginning of a command never allows a command line with several commands. Only a rule for the whole tool
does, or a rule that spells the line out without a wildcard. Deny and ask apply to each command of the line. If its commands
cannot be determined (`commands.FoundCommands`), no pattern allows it, and a rule that denies or asks for commands makes it ask.

This is pure policy: the caller decides whom to ask, and how.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, cast

from msgspec import Struct

from dragoman.engine.commands import find_commands, is_compound
from dragoman.engine.globs import TextGlob, path_glob, text_glob
from dragoman.model.parts import Call

Verdict = Literal["allow", "ask", "deny"]

READING_TOOLS = frozenset(("read", "glob", "grep"))
"""The tools that read files below the root and change nothing."""
BUILTIN_NAMES = frozenset((*READING_TOOLS, "write", "edit", "apply_patch", "shell"))
"""The tools of the terminal agent. A rule whose name is similar to one of them is a typing error."""

# A rule for `write` applies to every tool that writes files, and one for `shell` to every way to run a command.
_ALSO = {"edit": "write", "apply_patch": "write", "local_shell": "shell"}
_STRICTNESS: Mapping[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


class Subject(Struct, frozen=True):
    """What a call acts on, for a rule to match: a path below the root, a command, or the unparsed input."""

    kind: Literal["path", "command", "input"]
    text: str


class Rule(Struct, frozen=True):
    """A line of the policy: tools by name, and a pattern for their subjects. No pattern: any subject."""

    tool: str
    pattern: str | None = None

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}: {self.pattern}"

    def names(self, tool: str) -> bool:
        glob = text_glob(self.tool)
        # Other agents write `mcp__` before the names of servers; such a rule must work too.
        spellings = (tool, _ALSO.get(tool, tool), f"mcp__{tool}" if "__" in tool else tool)
        return any(map(glob.matches, spellings))

    def covers(self, subject: Subject) -> bool:
        """Whether the pattern matches the whole subject, as `allow` requires."""
        if self.pattern is None or self.pattern == "*":
            return True
        glob = text_glob(self.pattern)
        if subject.kind == "command":
            text = subject.text.strip()
            return glob.matches(text) and (glob.is_literal or _is_clear(text, glob))
        is_path = subject.kind == "path"
        return _matches_path(self.pattern, subject.text) if is_path else glob.matches(subject.text)

    def touches(self, subject: Subject) -> bool:
        """Whether the pattern matches any part of the subject, which is enough for `ask` and `deny`."""
        if self.covers(subject):
            return True
        if subject.kind == "path" and self.pattern is not None:
            # The file systems of macOS take both cases of a letter for the same.
            return _matches_path(self.pattern.casefold(), subject.text.casefold())
        if subject.kind == "command" and self.pattern is not None:
            glob = text_glob(self.pattern)
            return any(
                glob.matches(text) for text in (subject.text, *find_commands(subject.text).commands)
            )
        return False

    def may_touch(self, subject: Subject) -> str:
        """Why the pattern might match a command of the subject that cannot be determined; empty if it cannot match."""
        if subject.kind != "command" or self.pattern is None:
            return ""
        seen = find_commands(subject.text)
        if seen.hidden or seen.opaque:
            return seen.hidden or seen.opaque
        glob = text_glob(self.pattern)
        is_doubtful = any(map(glob.may_begin, seen.beginnings))
        return "the words of a command are put together when it runs" if is_doubtful else ""


def _matches_path(pattern: str, path: str) -> bool:
    pattern = pattern.removeprefix("./")
    # As in .gitignore, a name without a slash matches in every folder, and a folder matches everything in it.
    patterns = [pattern] if "/" in pattern.rstrip("/") else [pattern, f"**/{pattern}"]
    return any(
        path_glob(each).matches(path) or path_glob(f"{each.rstrip('/')}/**").matches(path)
        for each in patterns
    )


def _is_clear(text: str, glob: TextGlob) -> bool:
    """Whether a pattern with a wildcard may allow a command: the text is a single command, and all its words are known.

    A program that runs a text or a file must be named by the pattern.
    """
    if is_compound(text):
        return False
    seen = find_commands(text)
    name = text.split(maxsplit=1)[0]
    is_named = glob.beginning == name or glob.beginning.startswith(f"{name} ")
    return not seen.hidden and (not seen.opaque or is_named)


class PolicyDecision(Struct, frozen=True):
    """The verdict of the policy, and the rule that decided; no rule: the default.

    unseen: why a rule that denies or asks might match a part of the command that cannot be determined.
    may_be_denied: a rule that denies might match such a part.
    """

    verdict: Verdict
    rule: Rule | None = None
    unseen: str = ""
    may_be_denied: bool = False


class Policy(Struct, frozen=True, kw_only=True):
    """The rules. An empty policy allows tools that read and asks for all others."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    default: Verdict = "ask"

    def judge(self, tool: str, subjects: Sequence[Subject]) -> PolicyDecision:
        """The verdict on a call with these subjects: the strictest verdict on any of them."""
        judgements = [self._judge_one(tool, subject) for subject in subjects] or [
            self._judge_one(tool, Subject("input", ""))
        ]
        return max(judgements, key=lambda judgement: _STRICTNESS[judgement.verdict])

    def _judge_one(self, tool: str, subject: Subject) -> PolicyDecision:
        for verdict, rules in (("deny", self.deny), ("ask", self.ask)):
            for rule in rules:
                if rule.names(tool) and rule.touches(subject):
                    return PolicyDecision(cast("Verdict", verdict), rule)
        denied = self._unseen(self.deny, tool, subject)
        unseen = denied or self._unseen(self.ask, tool, subject)
        for rule in self.allow:
            is_whole = rule.pattern is None or rule.pattern == "*"
            if rule.names(tool) and rule.covers(subject) and not (is_whole and unseen):
                return PolicyDecision("allow", rule)
        otherwise: Verdict = "allow" if tool in READING_TOOLS else self.default
        if unseen and otherwise != "deny":
            return PolicyDecision("ask", None, unseen, bool(denied))
        return PolicyDecision(otherwise)

    @staticmethod
    def _unseen(rules: Sequence[Rule], tool: str, subject: Subject) -> str:
        return next(
            filter(None, (rule.may_touch(subject) for rule in rules if rule.names(tool))), ""
        )

    def unused(self, tools: Iterable[str]) -> tuple[Rule, ...]:
        """The rules that name none of these tools, for a warning to the author of the policy."""
        names = tuple(tools)
        rules = (*self.deny, *self.ask, *self.allow)
        return tuple(rule for rule in rules if not any(map(rule.names, names)))


class FileChange(Struct, frozen=True):
    """What a call would do to one file: its text before and after. None: there is no file."""

    path: str
    before: str | None
    after: str | None


class Approval(Struct, frozen=True, kw_only=True):
    """A call that needs approval. `unseen` and `may_be_denied` are those of the judgement.

    changes: everything that the call would do to files, as they are now; empty if that cannot be known.
    """

    tool: str
    call: Call
    subjects: tuple[Subject, ...]
    rule: Rule | None = None
    unseen: str = ""
    may_be_denied: bool = False
    changes: tuple[FileChange, ...] = ()
