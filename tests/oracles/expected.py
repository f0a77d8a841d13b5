"""The verdicts that a test expects of all channels: it states those that differ from what the registry says."""

from collections.abc import Mapping

from parity.channels import CHANNELS, Channel, Settled


def surprises(found: Mapping[str, str], **stated: str) -> dict[str, str]:
    """Returns the channels with another verdict than a test states; empty if there are none.

    Two sides are one program unless a test states other verdicts. Then a channel is ``proved`` if a proof settles its
    question, and else ``equal``; one that may have no question may be ``skipped``.

    Args:
        found: the verdict of each channel.
        stated: the verdicts that differ from these, by channel.
    """
    assert set(stated) <= set(found) <= set(CHANNELS), set(stated) - set(found)
    return {
        name: str(verdict)
        for name, verdict in found.items()
        if str(verdict) not in ((stated[name],) if name in stated else usual(name))
    }


def usual(name: str) -> tuple[str, ...]:
    """Returns the verdicts of a channel on two sides that are one program."""
    channel = CHANNELS[name]
    verdict = "equal" if channel.settled is Settled.NOTHING else "proved"
    always = channel.applies is Channel.applies and channel.group is None
    return (verdict,) if always else (verdict, "skipped")
