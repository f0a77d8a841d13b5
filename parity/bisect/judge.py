"""Whether a case still fails alike."""

from parity.bisect.signature import Answer, Signature
from parity.cases.case import Case
from parity.compare.session import Session
from parity.run.run import CaseResult, run_case
from parity.verdicts import BLOCKING

__all__ = ["Judge", "signature_of"]


def signature_of(result: CaseResult, channel: str = "") -> Signature | None:
    """Returns the signature of a case's worst failure; None where nothing fails.

    Args:
        result: of the case.
        channel: the channel that is asked about; the worst by default.
    """
    blocking = [each for each in result.blocking if not channel or each.name == channel]
    if not blocking:
        return None
    return Signature.seen(blocking[0])


class Judge:
    """Asks cases whether they fail alike.

    Args:
        signature: the failure.
        bench: where what cases share is kept.
    """

    def __init__(self, signature: Signature, bench: Session | None = None):
        self.signature, self._bench = signature, bench or Session()
        self.asked = 0

    def ask(self, case: Case) -> Answer:
        """Returns whether a case fails alike.

        Args:
            case: to be run on the signature's channel.
        """
        return self._once(case, self._bench)

    def ask_twice(self, case: Case) -> Answer:
        """Returns the same, or ``ambiguous`` where a second run that shares nothing with the first disagrees."""
        first = self.ask(case)
        return first if self._once(case, Session()) is first else Answer.AMBIGUOUS

    def _once(self, case: Case, bench: Session) -> Answer:
        self.asked += 1
        result = run_case(case, bench, (self.signature.channel,))
        found = result.channels.get(self.signature.channel)
        if found is None:
            return Answer.OTHER
        if self.signature.of(found):
            return Answer.FAILS
        return Answer.OTHER if found.verdict in BLOCKING else Answer.PASSES
