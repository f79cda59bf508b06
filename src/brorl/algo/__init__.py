"""The learning rule: pure functions of tensors, with no config, I/O, logging or global state.

Axes:  P groups · B sequences, any number per group · M tokens, flat [M] or padded [B, T]

Order in a step: filtering (raw scores) → shaping → advantages (whole groups, whole step) →
selection → importance and aggregation → losses and kl, micro-batch by micro-batch.

advantages    advantages(rewards_B, group_B, lengths_B, *, estimator, normalise, baseline_P)
              reinforce_plus_plus_baseline, grpo, dr_grpo, rloo; normalised
aggregation   loss_denominator(lengths_B, *, loss_agg_mode)
              token_weights(mask, sequence, *, loss_agg_mode, denominator, dtype)
losses        clipped_policy_loss(logp, old_logp, advantage, weight, mask, *, clip_ratio_low,
              clip_ratio_high, clip_ratio_c) -> PolicyLoss
kl            kl_penalty(logp, ref_logp, weight, mask, *, kl_estimator) -> KlPenalty
              kl_estimates(logp, ref_logp, *, kl_estimator)
importance    importance_weights(old_logp, engine_logp, mask, sequence, *, tis_type, cap, min)
              -> ImportanceWeights; mismatch(old_logp, engine_logp, mask) -> Mismatch | None
filtering     group_outcomes(scores_B, group_B, *, n_groups, metric) -> GroupOutcomes
              outcome_counts(outcomes) -> OutcomeCounts
shaping       overlong_penalty, stop_properly, cosine_length_term, linear_length_term,
              length_term_active
schedules     scaled_lr, warmup_factor, cosine_factor (no torch)
waves         check_waves(waves, *, stop_right); samples_to_add(right, drawn, *, waves, stop_right)
              reach_chances, expected_samples (p, *, waves, stop_right); prompt_weight(p, *,
              waves, stop_right, baseline) (no torch)
stopping      unbiased_rate(right_P, size_P, before_P, *, stop_right); unbiased_pass_at_k (…, k)
              unbiased_baseline, unbiased_advantages (rewards_B, right_B, group_B, before_P, *,
              stop_right); first_samples(right, size, before, *, stop_right), exact
selection     cut_groups(right_B, answer_B, group_B, keys_2B, *, keep_per_group) -> Cut
              random_rows(group_B, keys_B, *, keep_per_group) -> Cut
              max_variance_rows(rewards_B, group_B, *, keep_per_group)
checks        has_spread, group_means, group_sums, group_sizes, quotient, and the door checks
"""
