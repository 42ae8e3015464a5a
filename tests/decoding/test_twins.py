"""Every public function of decoding/ has a test against something slow and obviously right.

The register names, for each function, the test that holds its twin: the same written out, an
exhaustive list, a textbook formula, fifty digits, or the truth of a simulated world.
"""

from __future__ import annotations

import ast
from pathlib import Path

import overheard.decoding

HERE = Path(__file__).parent
TWINS = {
    "affine_map.fit_affine_map": "affine_map::agrees_with_plain_least_squares_where_that_works",
    "affine_map.rounding_scale": "edges::rounding_of_the_wire_is_that_of_random_numbers",
    "batch_noise.noise_factor": "surrogate::noise_factor_is_the_variance_of_the_summed_batch_means",
    "batch_noise.trend": "slow_twins::the_trend_spans_the_polynomials",
    "batch_noise.residual_covariance": "surrogate::residual_covariance_is_that_of_the_noise",
    "batch_noise.residual_freedom": "surrogate::freedom_is_the_rank_of_the_residuals",
    "posterior.flip_check": "slow_twins::the_flip_check_tries_every_change_of_one_or_two_records",
    "contribution.contributions": "matched_filter::agrees_with_conditioning_a_joint_gaussian",
    "ties.same_rows": "slow_twins::equal_rows_have_equal_numbers",
    "ties.decode_tied": "ties::counts_are_those_of_an_exhaustive_search",
    "ties.linear_solve": "ties::counts_are_those_of_an_exhaustive_search",
    "ties.group_means": "slow_twins::groups_are_given_their_mean",
    "ties.tie_diagnostics": "slow_twins::groups_are_given_their_mean",
    "descent.descended": "tempering::it_does_what_trying_every_change_does",
    "posterior.answer_bits": "slow_twins::answers_and_unknowns_are_counted",
    "posterior.enumeration": "posterior::enumeration_agrees_with_the_naive_list",
    "posterior.sweeps_of": "posterior::sweeps_are_close_to_the_exact_posterior",
    "group_posterior.group_posterior": "group_posterior::agrees_with_the_slow_twin",
    "label_solve.solve_residuals": "high_precision::labels_behind_crowded_rows",
    "posterior.decode": "posterior::calibrated_at_every_rank_and_noise",
    "posterior.believable": "slow_twins::noise_is_believed_unless_spare_rows_show_more",
    "logistic_surrogate.decode_logistic": "surrogate::slope_is_the_derivative",
    "matched_filter.block": "matched_filter::solves_the_system",
    "matched_filter.background": "matched_filter::solves_the_system",
    "matched_filter.matched_filters": "matched_filter::solves_the_system",
    "matched_filter.scale_of": "matched_filter::what_cannot_be_used",
    "matched_filter.smoothed": "slow_twins::smoothing_is_a_mean_of_neighbours",
    "matrix_free.decode_matrix_free": "ties::conjugate_gradients_find_and_prove_the_answer",
    "max_entropy.check_prior": "max_entropy::bad_priors_are_refused_by_name",
    "max_entropy.count_unknowns": "slow_twins::answers_and_unknowns_are_counted",
    "max_entropy.max_entropy": "high_precision::maximum_entropy_solves_its_own_equations",
    "measurement.from_rows": "measurement::reduction_keeps_the_likelihood_of_every_answer",
    "measurement.from_differences": "measurement::reduction_keeps_the_likelihood_of_every_answer",
    "measurement.from_gram": "measurement::gram_form_agrees_with_rows_when_well_conditioned",
    "measurement.stack": "measurement::stacked_rounds_equal_one_long_round",
    "measurement.finite": "measurement::bad_rows_are_refused_by_name",
    "mixed_chains.posterior": "mixed_model::the_exact_stage_finds_what_summing_over_all_sets_finds",
    "mixed_chains.sample": "mixed_model::sampling_finds_what_summing_over_all_sets_finds",
    "mixed_chains.sample_exactly":
        "mixed_model::the_exact_stage_finds_what_summing_over_all_sets_finds",
    "mixed_chains.best_set": "mixed_model::best_set_by_hand",
    "persistence.common_part": "matched_filter::it_is_what_factors_in_common_make",
    "mixed_model.terms": "mixed_model::probabilities_are_those_of_enumeration",
    "mixed_model.grid_of": "mixed_model::probabilities_are_those_of_enumeration",
    "mixed_model.log_prior_of_pairs": "mixed_model::probabilities_are_those_of_enumeration",
    "mixed_model.covariances": "mixed_model::probabilities_are_those_of_enumeration",
    "mixed_model.log_prior": "slow_twins::the_prior_over_sets_of_clients_is_beta_binomial",
    "moments.statistics": "moments::the_law_is_what_the_records_do",
    "moments.moments_of_secret": "moments::the_moments_come_back",
    "posterior.confirmed": "posterior::confirmation_opens_records_until_the_others_are_right",
    "few_equations.few_equations":
        "few_equations::a_secret_that_goes_with_the_features_is_not_noise",
    "few_equations.tilted": "few_equations::a_secret_that_goes_with_the_features_is_not_noise",
    "few_equations.learned_share":
        "few_equations::the_share_of_a_client_unlike_the_population_is_learned",
    "chains.choose": "nuisance::probabilities_are_those_of_enumeration",
    "chains.sampled": "nuisance::probabilities_are_those_of_enumeration",
    "noise.covariance": "nuisance::whitened_noise_has_unit_covariance",
    "nuisance.whitened": "nuisance::the_noise_in_a_direction_is_what_other_deviations_have_there",
    "calibration.tempered": "tempering::evidence_is_what_a_power_makes_of_it",
    "calibration.temperature_of": "tempering::what_is_surer_than_right_is_tempered",
    "calibration.calibrate": "tempering::what_is_surer_than_right_is_tempered",
    "gaussian.match": "tempering::sites_match_the_moments",
    "relaxed_likelihood.ridge": "high_precision::ridge_regression_of_clients_that_come_together",
    "relaxed_likelihood.relaxed_likelihood": "relaxed_likelihood::one_loss_is_adam",
    "posterior.indistinguishable": "posterior::indistinguishable_records_stay_undecided",
    "max_entropy.fits": "slow_twins::fit_is_the_chi_square_tail",
    "max_entropy.likely": "slow_twins::fit_is_the_chi_square_tail",
    "gaussian.moment_sites": "gaussian::moments_are_those_of_one_hot_indicators",
    "gaussian.cavities": "gaussian::cavities_agree_with_the_dense_formula",
    "gaussian.tilt": "gaussian::indicators_are_a_special_case_of_points",
    "rounds.from_factors": "rounds::no_answer_changes_its_likelihood",
    "rounds.float32_noise": "rounds::float32_noise_covers_the_true_error",
    "sparse_equations.joined": "peeling::dense_and_sparse_are_one_measurement",
    "sparse_ladder.decode_sparse":
        "peeling::larger_cells_are_searched_around_the_ladders_answer",
    "sparse_ladder.given_counts": "peeling::counts_are_shared_by_the_priors",
    "whole_counts.whole_counts": "whole_counts::the_posterior_is_that_of_listing_every_answer",
    "surrogate.decode_least_squares": "surrogate::least_squares_on_mini_batches",
    "update_scale.by_length":
        "update_scale::fewer_equations_than_unknowns_show_the_size_beside_what_is_expected",
    "update_scale.regressed": "update_scale::it_is_least_squares_outside_of_the_span",
    "update_scale.refit": "high_precision::a_scale_from_vectors_of_very_different_length",
}  # fmt: skip


def functions(path: Path) -> set[str]:
    """Public functions at the top of a module."""
    body = ast.parse(path.read_text()).body
    return {n.name for n in body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")}


def test_every_kernel_has_a_twin():
    folder = Path(overheard.decoding.__file__).parent
    public = {f"{path.stem}.{name}" for path in folder.glob("*.py") for name in functions(path)}
    assert public == set(TWINS)


def test_every_twin_is_there():
    for twin in set(TWINS.values()):
        file, _, name = twin.partition("::")
        assert f"test_{name}" in functions(HERE / f"test_{file}.py"), twin
