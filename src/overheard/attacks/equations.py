"""The equation behind each attack, as a line of text, and where its paper has it.

θ is the model sent, θ′ the one returned, g(v) a record's gradient were its secret v, s the secret,
y the label, f the model and m the number of records; b is a round's sum of updates. An attack may
bring its own line in a class attribute ``equation``; those that only guess have none.
"""

from __future__ import annotations

_MEASURED = "(θ − θ′) m / rate = Σᵢ gᵢ(sᵢ)"
_MODEL_BASED = "(driouich2022, Algorithm 4; on a linear model Algorithm 3)"

EQUATIONS = {
    "max_entropy": f"{_MEASURED}, linear in the one-hot values; p = softmax(Aᵀλ + log prior), with "
    "λ from the convex dual",
    "joint_decode": f"{_MEASURED}, one unknown per (value, class) of a record",
    "partial_decode": f"{_MEASURED} + a Gaussian sum of the unknown records",
    "candidate_decode": "(θ − θ′) m / rate = Σᵢ Σᵥ zᵢᵥ gᵢ(v) over the pool; zᵢ = 0 for strangers",
    "cos_matching": "max over s of Σₜ cos(∇L(θₜ; s), θₜ − θ′ₜ) (lyu2021, Algorithm 1)",
    "gumbel": "max over s of Σₜ cos(∇L(θₜ; s), θₜ − θ′ₜ), "
    "s a softmax at some temperature (lyu2021 as run in driouich2022)",
    "l2_lbfgs": "min over s of Σₜ ‖∇L(θₜ; s) − (θₜ − θ′ₜ) / rate‖² (Zhu et al. 2019)",
    "model_based_linear": "sᵢ = (yᵢ − θₚ·xᵢ) / θₛ, the ⌈ρm⌉ largest are 1 "
    "(driouich2022, Algorithm 3)",
    "model_based_local": f"sᵢ = argmin over v of (yᵢ − f(xᵢ, v; θ*))² {_MODEL_BASED}",
    "model_based_last_returned": f"sᵢ = argmin over v of (yᵢ − f(xᵢ, v; θ′))² {_MODEL_BASED}",
    "model_based_global": f"sᵢ = argmin over v of (yᵢ − f(xᵢ, v; θ))² {_MODEL_BASED}",
    "public_model": "P(s | public attributes), fitted elsewhere (lyu2021, section 4.3)",
    "statistics": "sᵢ = the majority of six rules on P(yᵢ | xᵢ, v; θ′ₜ) (lyu2021, section 4.3)",
    "exact_linear": "θ′ = θ − W(θ − θ*), hence θ* is where θ′ = θ (xu2021, Observation 1)",
    "learned_map": "min over φ of Σₜ ‖φ(θₜ) − (θₜ − θ′ₜ)‖², then φ(θ*) = 0 "
    "(xu2021, problems 9 and 10)",
    "structured": "θ′ = the client's own steps from θ on a few stand-in records, "
    "which are fitted to all updates",
    "single_record": "y = w·∇w / ∇b + b − ∇b / 2 (leprovost2023, K = 1)",
    "group_means_pinv": "(K/2) ∇ = Σ_c N_c r̄_c [h̄_c, 1], by pseudo-inverse (leprovost2023, K > 1)",
    "group_means_tikhonov": "(K/2) ∇ = Σ_c N_c r̄_c [h̄_c, 1], with Tikhonov's term "
    "(leprovost2023, K > 1)",
    "bayes_groups": "(K/2) ∇ = Σ_c N_c r̄_c [h̄_c, 1] + noise of known covariance; "
    "r̄ has a Gaussian prior",
    "linear_decode": "m ∇ = Σᵢ (f(xᵢ) − yᵢ) ∂f(xᵢ), linear in the labels y",
    "sum_decode": "Σ over clients of (θ − θ′) m / rate = Σᵢ gᵢ(sᵢ), "
    "the records of all of them unknown",
    "matched_filter": "yᵣ = a·bᵣ with a = Cov⁻¹ (g(target) − mean g); y = A τ + noise, "
    "τ yes or no, A who took part",
    "gradient_disaggregation": "bᵣ = Σᵢ Aᵣᵢ Δwᵢ + ξᵣ by least squares (kerkouche2023, section 5.1)",
    "ols": "gᵣ(bᵣ) = Σᵢ Aᵣᵢ xᵢ + ξᵣ by least squares, "
    "gᵣ a linear feature (kerkouche2023, section 5.2)",
    "ridge": "min over x of Σᵣ vᵣ (gᵣ(bᵣ) − Σᵢ Aᵣᵢ xᵢ)² + λ‖x‖² (kerkouche2023, section 5.2)",
    "prolin": "max over τ of Πᵣᵢ p(Xᵣᵢ | τᵢ) subject to Σᵢ Aᵣᵢ Xᵣᵢ = gᵣ(bᵣ) "
    "(kerkouche2023, section 5.2)",
    "gradient_variance_gmm": "Var of the last layer's gradient at (xᵢ, v), a mixture of two "
    "Gaussians (lyu2021, section 3.3)",
}
