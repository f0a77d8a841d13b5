"""Hand-written pairs: required proofs, required refusals, and the detection of a broken prover by the table."""

import pathlib
import types

import pytest
from campaigns.prover import run as campaign_run
from campaigns.prover.pairs import PAIRS, Pair

from parity.ir.stablehlo import functions, liveness, operations, reader
from parity.ir.stablehlo import signatures as words
from parity.prove import fingerprint, numbering, proof
from parity.verdicts import Verdict


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_pair(pair: Pair):
    result = campaign_run.prove_pair(pair)
    assert result.rung is pair.rung, result.outcome()
    assert result.proved == (pair.rung is Verdict.PROVED) == (not result.frontier)
    for finding in result.findings():
        assert finding.sentence()
    assert campaign_run.prove_pair(pair, proof.is_one_program) == result.same_program


# (module, current line, line as a careless author might have written it)
SABOTAGES = (
    (numbering, 'f"#carry {depth} {', 'f"#carry {0} {'),
    (numbering, "if not split:", "if True:"),
    (numbering, "            env[condition.outputs[0]],\n", ""),
    (numbering, '"#step", colours[slot], updates[slot]', '"#step", colours[slot]'),
    (numbering, '"#exit", identity, steps[slot]', '"#exit", identity'),
    (numbering, "table.number(word, self.env[op.operands[slot]])", "table.number(word)"),
    (numbering, "body.outputs[slot] == body.parameters[slot]", "body.outputs[slot] in body.parameters"),
    (numbering, 'table.number_set("#group", members)', 'table.number_set("#group", [])'),
    (numbering, '"#barrier", group, member', '"#barrier", group'),
    (numbering, 'f"#effect {len(effects)}", *scope', 'f"#effect {len(effects)}"'),
    (numbering, 'tail = [self.table.number(f"#effect {len(effects)}", *scope)]', "tail = []"),
    (numbering, "for each in regions] for slot", "for each in regions[:1]] for slot"),
    (numbering, '"#region", done, *[env[value] for value in region.outputs]', '"#region", done'),
    (numbering, '"#parameter {depth} {position} {kind}"', '"#parameter {depth} {kind}"'),
    (
        numbering,
        "return self.table.number(form.word, *operands)",
        "return self.table.number(form.name, *operands)",
    ),
    (numbering, 'slots_in[position]}", env[outer]', 'slots_in[position]}"'),
    (numbering, "repeated = self.table.nodes[operand][0] == word", "repeated = True"),
    (liveness, "read += region.outputs if is_whole", "read += [] if is_whole"),
    (liveness, "read = read[:1]", "read = []"),
    (liveness, "read = [read[slot] for slot in live]", "read = []"),
    (liveness, "needed[value] |= needed[parameter]", "pass"),
    (liveness, "if not (slots or op.effect):", "if not slots:"),
    (liveness, "while (live := _live(op, needed)) != op.live:", "if (live := _live(op, needed)) != op.live:"),
    (operations, '"stablehlo.subtract",', '"stablehlo.subtract", commutes=True,'),
    (words, r"handle = )0*[1-9]\d*", r"handle = )\d+"),
    (words, "return self._meshes[name]", "return name"),
    (words, "key = (name, operands, *items, *types)", "key = (name, operands, *items)"),
    (
        words,
        'if facts(name).group is Group.COLLECTIVE and "channel_handle" in texts:',
        'if "channel_handle" in texts:',
    ),
    (words, ' and "?" not in texts["sharding"]', ""),
    (words, "_digest_text(array.tobytes(), str(attribute.type))", '"constant"'),
    (words, "_digest_text(str(attribute).encode()", '_digest_text(b""'),
    (words, 'texts["host function"] = self._private', "pass"),
    (words, 'return texts.get("is_host_transfer") == "true"', "return False"),
    (words, 'texts.get("has_side_effect") == "true"', "False"),
    (operations, ' or (results == 0 and name != "func.call")', ""),
    (operations, '"infeed outfeed recv rng send"', '"infeed"'),
    (reader, " and not self._functions[op.callee].notes", ""),
    (reader, 'op.form.bare == "func.call []"', "op.form.kind == 8"),
    (reader, "if not op.effect:\n                        calls", "if True:\n                        calls"),
    (functions, "op.effect = self[name].effect or op.effect", "pass"),
    (functions, "op.effect = self[name].effect or op.effect", "op.effect = self[name].effect"),
    (functions, "if form.attributes:  # JAX", "if False:  # JAX"),
    (reader, "if op.regions or op.form.symbols or op.callee:", "if op.regions or op.form.symbols:"),
    (proof, '"donated": str(any(name in attributes for name in _DONATION)).lower()', '"donated": ""'),
    (proof, 'pairs = [("module", reference.module, candidate.module)]', "pairs = []"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "line", "careless"), SABOTAGES, ids=lambda value: str(value)[:40])
def test_a_broken_prover_is_noticed(module, line, careless, monkeypatch):
    """Rewrites one line of the prover; the table of pairs must then fail."""
    source = pathlib.Path(module.__file__).read_text()
    assert source.count(line) == 1, f"{module.__name__} has this line {source.count(line)} times: {line}"
    broken = types.ModuleType(module.__name__)
    broken.__dict__["__file__"] = module.__file__
    exec(compile(source.replace(line, careless), module.__file__, "exec"), broken.__dict__)
    public = {name: own for name, own in vars(module).items() if not name.startswith(("_", "@"))}
    for user in (words, numbering, functions, reader, proof, fingerprint, campaign_run):
        for name, own in public.items():
            if vars(user).get(name) is own:
                monkeypatch.setattr(user, name, getattr(broken, name))
    assert any(_answer(pair) is not pair.rung for pair in PAIRS)


def _answer(pair: Pair) -> Verdict | None:
    try:
        return campaign_run.prove_pair(pair).rung
    except (AssertionError, IndexError, KeyError, ValueError):
        return None
