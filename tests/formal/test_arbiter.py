"""Round-robin arbiters starve nobody: who persists is served within as many accepted grants as
there are requesters.

One requester, any of them, is watched. While it requests and is not served, the grants that are
accepted for others are counted. The proof rests on its distance from the one served last: with
every grant accepted for another requester it falls.
"""

import pytest
from amaranth.hdl import Mux, Signal

from hdl.fabric.arbiter import Arbiter
from hdl.params import Policy
from tests.formal.prove import Case, mutant, prove, reach, refute


def arbiter_case(block: type[Arbiter], n: int, *, policy: Policy = Policy.ROUND_ROBIN,
                 invariants: bool = True) -> Case:
    case = Case()
    m = case.m
    arbiter = block(n, policy=policy)
    inside = case.block(arbiter)
    request, accept = case.free(n, "request"), case.free(1, "accept")
    who = case.fixed(range(n), "who")
    case.given(who < n)
    m.d.comb += [arbiter.request.eq(request), arbiter.accept.eq(accept)]
    grant = case.see(arbiter.grant, "grant")
    mine = case.see(1 << who, "mine")[:n]
    wants, served = case.see((request & mine).any(), "wants"), case.see(
        (grant & mine).any(), "served")
    passed = Signal(range(n + 1))  # accepted grants of others while it has been waiting
    with m.If(~wants | served & accept):
        m.d.sync += passed.eq(0)
    with m.Elif(accept):
        m.d.sync += passed.eq(passed + 1)

    case.must((grant & ~request) == 0, "asked")
    case.must((grant & (grant - 1)[:n]) == 0, "one")
    case.must(grant.any() == request.any(), "some")
    case.must(passed < n, "fair")
    case.reach((passed == n - 1) & served & accept, "last")
    if invariants and n > 1:
        after = inside["after"]
        # -(2g): all bits above some one, so that with its lowest bit added it runs over.
        lowest = (after & -after)[:n]
        case.must((after + lowest)[:n] == 0, "after")
        # Those before it in turn: all from the pointer on, or all up to it and from there on.
        below = case.see((mine - 1)[:n], "below")
        before = case.see(Mux((after & mine).any(), after & below, after | below), "before")
        ahead = case.see(sum(before[index] for index in range(n)), "ahead")
        case.must(passed + ahead < n, "nearer")
    return case


@pytest.mark.parametrize("n", [1, 2, 3, 8, pytest.param(16, marks=pytest.mark.slow),
                               pytest.param(48, marks=pytest.mark.slow)])
def test_who_persists_is_served_within_n_accepted_grants(n):
    prove(arbiter_case(Arbiter, n), f"arbiter{n}", induction=1)
    if n <= 8:
        reach(arbiter_case(Arbiter, n), f"arbiter{n}", bound=n + 2)


@pytest.mark.parametrize(("old", "new"), [
    ("-(self.grant << 1)", "-self.grant"),
    ("self.request & after", "self.request"),
    ("with m.If(self.accept):", "with m.If(1):"),
], ids=["served again", "lowest first", "moves unserved"])
def test_an_unfair_arbiter_is_refuted(old, new):
    broken = mutant("hdl.fabric.arbiter", (old, new)).Arbiter
    refute(arbiter_case(broken, 3, invariants=False), "arbiter", bound=10, breaks="fair")


def test_fixed_priority_is_refuted_as_a_fair_policy():
    unfair = arbiter_case(Arbiter, 3, policy=Policy.FIXED, invariants=False)
    refute(unfair, "arbiter-fixed", bound=10, breaks="fair")
