"""The page with answers before and after: complete, escaped, and it stands alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import certus
from certus.language import DPO, GRPO, LanguageModel
from certus.report import answer_report

ODD = "<script>alert(1)</script> \x00\u202e & ж"


@pytest.fixture(scope="module")
def base() -> LanguageModel:
    small: dict[str, Any] = {"n_layers": 1, "width": 16, "heads": 2, "context": 64}
    model = LanguageModel(
        **small, max_iter=5, max_time=None, random_state=0, early_stopping=False
    )
    with certus.config_context(certify="never"):
        return model.fit("to be or not to be <b> " * 40)


def reward(prompt: Any, answer: str) -> float:
    return float("b" in answer)


def test_prompts_and_answers_are_escaped(base: LanguageModel, tmp_path: Path) -> None:
    policy = GRPO(base, reward, max_tokens=8, max_iter=2, random_state=0)
    policy.fit([ODD, "to be", b"\xff<i>"])
    before = ["<img src=x onerror=alert(2)>", "", "\x1b[31mred"]
    policy.samples_["before"][:3] = before
    report = answer_report(policy)
    page = report.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert "<script" not in page and "<img" not in page and "<i>" not in page
    assert "&lt;script&gt;alert(1)" in page and "&lt;img src=x" in page
    assert "\x00" not in page and "\u202e" not in page and "\x1b" not in page
    assert "(an empty answer)" in page
    assert not re.findall(r'(?:src|href)="', page)
    assert "default-src 'none'" in page
    framed = report._repr_html_()  # a page in an attribute: escaped twice
    assert "<script" not in framed and "&amp;lt;script" in framed


def test_both_answers_rewards_and_the_frontier_are_shown(base: LanguageModel) -> None:
    policy = GRPO(base, reward, max_tokens=8, max_iter=2, random_state=0)
    policy.fit(["to", "or"])
    found, page = policy.side_by_side(), answer_report(policy).to_html()
    assert page.count('<section class="answer">') == len(found.prompt)
    for shown in (*found.before, *found.after):
        assert certus.wording.clean(shown).strip()[:3].replace("<", "&lt;") in page
    assert "What did the reward cost?" in page and page.count("<svg") == 2
    looks = len(policy.frontier().kl)
    assert page.count('class="bar first"') == 2 * looks
    told = policy.certificate_["kl_to_reference"].detail
    assert told.split(";")[0].replace(" %", "\u00a0%") in page.replace("&#39;", "'")


def test_a_policy_without_a_reward_has_no_frontier(base: LanguageModel) -> None:
    policy = DPO(base, max_iter=2, random_state=0)
    policy.fit(["to", "or"], ["be", "not"], ["x", "y"])
    page = answer_report(policy).to_html()
    assert "<svg" not in page and "What did the reward cost?" not in page
    assert " · KL " in page and "· reward " not in page and ">nan<" not in page


def test_only_policies_have_answers(base: LanguageModel) -> None:
    with pytest.raises(TypeError, match="Pass a fitted DPO, PPO or GRPO, not Lang"):
        answer_report(base)
