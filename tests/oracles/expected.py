"""Expected verdicts of all channels: a test states those that differ from the registry's."""

from collections.abc import Mapping

from parity.channels import CHANNELS, Channel, SettledByProof


def surprises(found: Mapping[str, str], **stated: str) -> dict[str, str]:
    """Returns the channels whose verdict is not the expected one; empty if there are none.

    By default both sides are one program. Then a channel is ``proved`` if a proof can decide it, else ``equal``; a
    channel that may not apply may be ``skipped``.

    Args:
        found: the verdict of each channel.
        stated: the expected verdicts that differ from the default, by channel.
    """
    assert set(stated) <= set(found) <= set(CHANNELS), set(stated) - set(found)
    return {
        name: str(verdict)
        for name, verdict in found.items()
        if str(verdict) not in ((stated[name],) if name in stated else usual(name))
    }


def usual(name: str) -> tuple[str, ...]:
    """Returns the possible verdicts of a channel on two sides that are one program."""
    channel = CHANNELS[name]
    verdict = "equal" if channel.settled_by_proof is SettledByProof.NEVER else "proved"
    always = channel.applies is Channel.applies and channel.group is None
    return (verdict,) if always else (verdict, "skipped")
