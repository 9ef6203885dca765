"""What a job needs next, given its replicas.  Pure; the transitioner applies it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from gridbot_server.cycles import attempts
from gridbot_server.cycles.job import Decision, Ended, Job, Rules
from gridbot_server.cycles.quorum import (
    CRASHED,
    EQUAL,
    Compared,
    Judge,
    Pair,
    Support,
    factions,
    pair,
    support,
)
from gridbot_server.matching import assurance
from gridbot_server.matching.assurance import AssuranceTerms, Credence, Judgement
from gridbot_server.storage.states import FAILURES, State

# As many answers of strangers that all differ are borne for each attempt.
LIARS_PER_ATTEMPT = 3
_ENDED_AT = attrgetter("ended_at")


def decide(job: Job, rules: Rules) -> Decision:
    """Judge what has ended and say what is to be done.

    Deciding twice gives the same until it is applied, so that a crash in between loses nothing.
    """
    verdicts = {item.replica: False for item in job.ended if item.how in FAILURES}
    judge = Judge(rules.validator, job.compared)
    if job.known is not None:
        return _decide_known(job, rules, job.known, judge, verdicts)
    if job.is_cancelled:  # its answers are compared with none
        return Decision(verdicts)
    if job.has_outcome:
        decision = with_verdicts(job.ended, _canonical(job), judge, Decision(verdicts))
        return _witnessed(decision, verdicts) if rules.terms else decision
    answers = _answers(job)
    votes = _votes(answers)
    found = support(votes, judge)
    if found.crashed:
        faulty, undecided = _faulty(votes, found.crashed, job.compared)
        if undecided:
            return Decision(verdicts, provisional=job.relied_on, compare=undecided)
        if faulty:
            return _without(faulty, job, rules)
    if rules.terms:
        if found.unknown:
            return Decision(verdicts, provisional=job.relied_on, compare=found.unknown)
        return _decide_assured(job, rules, rules.terms, judge, votes, found, verdicts)
    if found.most >= rules.quorum and found.unknown:
        return Decision(verdicts, compare=found.unknown)
    if len(found.best) >= rules.quorum:
        canonical = found.best[0]
        valid, unknown = _verdicts(answers, canonical, judge)
        return Decision(verdicts | valid, canonical.replica, compare=unknown)
    failure = _set_aside(job, found.crashed) or attempts.failure(job, votes, rules)
    if failure:
        return Decision(verdicts | {item.replica: False for item in answers}, failure=failure)
    copies = attempts.copies(job, rules, rules.quorum - found.most - job.coming)
    return Decision(verdicts, copies=copies, why=attempts.why(job), pool=attempts.pool(job, rules))


def _decide_known(
    job: Job, rules: Rules, known: bytes, judge: Judge, failures: Mapping[int, bool]
) -> Decision:
    """As `decide`, where the BOT's owner knows the answer: each is judged by that, at once.

    If comparing crashes, that is the answer's fault, unless the known one crashes alone.
    """
    itself = pair(known, known)
    answers = [item for item in job.ended if item.how == State.SUCCESS]
    verdicts = {
        item.replica: judge.verdict(known, item.digest) for item in answers if item.valid is None
    }
    if CRASHED in verdicts.values():
        if itself not in job.compared:
            return Decision(failures, compare=(itself,))
        if job.compared[itself].verdict == CRASHED and not job.has_outcome:
            failure = _set_aside(job, (itself,))
            return Decision({**failures, **dict.fromkeys(verdicts, False)}, failure=failure)
    open_ = [item for item in answers if item.valid is None and verdicts[item.replica] is None]
    valid = {
        replica: verdict == EQUAL for replica, verdict in verdicts.items() if verdict is not None
    }
    compare = [pair(known, item.digest) for item in open_ if item.digest is not None]
    made = Decision({**failures, **valid}, compare=compare)
    if rules.terms:
        made = _witnessed(made, failures)
    if job.has_outcome:
        return made
    if right := [replica for replica, is_right in valid.items() if is_right]:
        return made._replace(canonical=min(right))
    wrong = sum(
        item.round == job.round and valid.get(item.replica, item.valid) is False for item in answers
    )
    if wrong >= rules.max_attempts:
        return made._replace(failure=f"{wrong} answers, and none is the one that its owner knows")
    if failure := attempts.failure(job, (), rules):
        return made._replace(failure=failure)
    copies = attempts.copies(job, rules, 1 - job.coming - len(open_))
    return made._replace(copies=copies, why=attempts.why(job), pool=attempts.pool(job, rules))


def _faulty(
    votes: Sequence[Ended], crashed: Sequence[Pair], compared: Mapping[Pair, Compared]
) -> tuple[list[int], list[Pair]]:
    """Return the replicas whose answers make comparing crash, and what must be compared to tell.

    Each is compared with itself: who crashes alone is at fault, unless all do.
    """
    alone = {digest: pair(digest, digest) for each in crashed for digest in each}
    unknown = sorted(each for each in alone.values() if each not in compared)
    if unknown:
        return [], unknown
    bad = {digest for digest, each in alone.items() if compared[each].verdict == CRASHED}
    if len(bad) == len(alone):
        return [], []
    return [item.replica for item in votes if item.digest in bad], []


def _without(faulty: Sequence[int], job: Job, rules: Rules) -> Decision:
    """Decide a job without the answers that make comparing crash, which lose."""
    lost = [item for item in job.ended if item.how == State.SUCCESS and item.valid is False]
    made = decide(
        replace(job, ended=[item for item in job.ended if item.replica not in faulty]), rules
    )
    valid = {**made.valid, **dict.fromkeys(faulty, False)}
    wrong = (*made.wrong, *faulty) if rules.terms else ()
    if not made.finishes and len(lost) + len(faulty) >= LIARS_PER_ATTEMPT * rules.max_attempts:
        why = f"{len(lost) + len(faulty)} answers made comparing crash"
        return Decision(valid, failure=why, wrong=wrong)
    return made._replace(valid=valid, wrong=wrong)


def _set_aside(job: Job, crashed: Sequence[Pair]) -> str | None:
    """Return why the job needs a human: comparing its answers crashes."""
    if not crashed:
        return None
    return f"set aside for review: comparing two answers failed: {job.compared[crashed[0]].why}"


def _decide_assured(
    job: Job,
    rules: Rules,
    terms: AssuranceTerms,
    judge: Judge,
    votes: Sequence[Ended],
    found: Support[Ended],
    verdicts: Mapping[int, bool],
) -> Decision:
    """As `decide`, for answers from strangers: what is not sure yet is provisional."""
    ranked = _ranked(votes, found, judge)
    judged = [_credences(group) for group in ranked]
    judgement, lacking = assurance.judge(judged, terms, job.coin, job.crews)
    best: Sequence[Ended] = ranked[0] if ranked else []
    supporters = tuple(item.replica for item in best if not item.credence.is_distrusted)
    if judgement is Judgement.CONFIRMED:
        valid, unknown = _verdicts(_answers(job), best[0], judge)
        made_up = tuple(item.replica for item in best if item.credence.is_distrusted)
        return Decision(
            {**verdicts, **valid},
            best[0].replica,
            confidence=assurance.confidence(judged),
            compare=unknown,
            right=(*_newly_agreeing(job, supporters), *made_up),
            wrong=tuple(replica for replica, is_right in valid.items() if not is_right),
        )
    # Some liars, each with a lie of its own, are no reason to give the job up.
    is_hopeless = len(ranked) >= rules.quorum + LIARS_PER_ATTEMPT * rules.max_attempts
    contradicting = [group[0] for group in ranked] if is_hopeless else []
    failure = _set_aside(job, found.crashed) or attempts.failure(job, contradicting, rules)
    if failure:
        lost = {item.replica: False for item in _answers(job)}
        return Decision({**verdicts, **lost}, failure=failure)
    waiting = job.coming
    if judgement is Judgement.PROVISIONAL and (len(supporters) > 1 or not waiting):
        return Decision(
            verdicts,
            provisional=supporters,
            is_backed=any(assurance.is_trusted(answer, terms) for answer in judged[0]),
            right=_newly_agreeing(job, supporters),
        )
    copies = attempts.copies(job, rules, lacking - waiting)
    stays = job.relied_on if _is_believed(job, judged, supporters) else ()
    return Decision(
        verdicts,
        provisional=stays,
        copies=copies,
        why=attempts.why(job),
        pool=attempts.pool(job, rules),
    )


def _ranked(
    votes: Sequence[Ended], found: Support[Ended], judge: Judge
) -> Sequence[Sequence[Ended]]:
    """Return the answers in groups that agree, the weightiest first; nearly always all agree."""
    if len(found.best) == len(votes):
        return [found.best] if votes else []
    groups = factions(votes, judge)
    return sorted(groups, key=lambda group: -assurance.weight(_credences(group)))


def _newly_agreeing(job: Job, supporters: tuple[int, ...]) -> tuple[int, ...]:
    """Return which of the replicas that agree with each other were not told of before."""
    told = job.relied_on if len(job.relied_on) > 1 else ()
    return tuple(item for item in supporters if item not in told) if len(supporters) > 1 else ()


def _witnessed(decision: Decision, failures: Mapping[int, bool]) -> Decision:
    """Tell apart the answers that the verdicts found right and wrong."""
    given = [(item, good) for item, good in decision.valid.items() if item not in failures]
    return decision._replace(
        right=tuple(replica for replica, is_right in given if is_right),
        wrong=tuple(replica for replica, is_right in given if not is_right),
    )


def _is_believed(job: Job, judged: Sequence[Sequence[Credence]], supporters: Sequence[int]) -> bool:
    """Whether a provisional outcome stays one while it is checked: nobody heard denies it."""
    return (
        {*job.relied_on} <= {*supporters}
        and any(not answer.is_distrusted for group in judged[:1] for answer in group)
        and all(answer.is_distrusted for group in judged[1:] for answer in group)
    )


def _credences(group: Sequence[Ended]) -> list[Credence]:
    return [item.credence for item in group]


def _answers(job: Job) -> list[Ended]:
    """Return the answers that may be right."""
    return [item for item in job.ended if item.how == State.SUCCESS and item.valid is not False]


def _votes(answers: Sequence[Ended]) -> list[Ended]:
    """Return the earliest answer of each voter, in order.

    A host that let its replica expire may have been given another copy; if it then answers both,
    it is still one host.
    """
    if len(answers) < 2:
        return [*answers]
    votes: dict[int, Ended] = {}
    for item in sorted(answers, key=_ENDED_AT):
        votes.setdefault(item.voter, item)
    return list(votes.values())


def _canonical(job: Job) -> Ended | None:
    return next((item for item in job.ended if item.replica == job.canonical), None)


def with_verdicts(
    ended: Sequence[Ended], canonical: Ended | None, judge: Judge, decision: Decision
) -> Decision:
    """Add the verdicts on answers.

    Those that came after the outcome count for their host, not for the job.
    """
    valid, unknown = _verdicts(ended, canonical, judge)
    return decision._replace(valid={**decision.valid, **valid}, compare=unknown)


def _verdicts(
    ended: Sequence[Ended], canonical: Ended | None, judge: Judge
) -> tuple[dict[int, bool], tuple[Pair, ...]]:
    """Return which answers agree with the canonical one, and pairs that are to be compared."""
    valid, unknown = dict[int, bool](), list[Pair]()
    for item in ended:
        if item.how != State.SUCCESS or item.valid is not None:
            continue
        if canonical is None or item.replica == canonical.replica:
            valid[item.replica] = canonical is not None
            continue
        verdict = judge.verdict(canonical.digest, item.digest)
        if verdict is not None:
            valid[item.replica] = verdict == EQUAL
        elif canonical.digest is not None and item.digest is not None:
            unknown.append(pair(canonical.digest, item.digest))
    return valid, tuple(unknown)
