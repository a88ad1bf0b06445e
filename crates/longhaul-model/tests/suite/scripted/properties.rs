//! Property tests of the scripted model.

use futures_util::FutureExt as _;
use longhaul_core::id::RunId;
use longhaul_core::raw::StoredText;
use longhaul_model::scripted::{ScriptLoop, reply_index};
use proptest::prelude::*;

use super::harness::{TIDY, answer, conversation, model, model_request};

fn reply_count_and_loop() -> impl Strategy<Value = (usize, Option<ScriptLoop>)> {
    (1_usize..20).prop_flat_map(|replies| {
        let round = (0..replies, 1..=replies, 1..=u32::MAX).prop_map(|(from, to, times)| {
            let (from, to) = (from.min(to - 1), to);
            ScriptLoop { from, to, times }
        });
        (Just(replies), proptest::option::of(round))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reply_index_is_never_out_of_range((replies, round) in reply_count_and_loop(), turn in any::<u32>()) {
        prop_assert!(reply_index(turn, replies, round) < replies);
    }

    #[test]
    fn every_reply_of_a_loop_is_repeated_as_configured(
        replies in 1_usize..8,
        from in 0_usize..8,
        length in 1_usize..8,
        times in 1_u32..6,
    ) {
        let from = from.min(replies - 1);
        let to = (from + length).min(replies);
        let round = ScriptLoop { from, to, times };
        let turns = from as u32 + (to - from) as u32 * times;
        let indexes: Vec<usize> = (1..=turns).map(|turn| reply_index(turn, replies, Some(round))).collect();
        for reply in 0..to {
            let count = indexes.iter().filter(|index| **index == reply).count();
            prop_assert_eq!(count, if reply < from { 1 } else { times as usize });
        }
    }

    /// Earlier requests, the model name, the run and the tools have no influence.
    #[test]
    fn a_reply_depends_on_turn_attempt_and_conversation_alone(
        turn in 1_u32..110,
        attempt in 1_u32..4,
        input in ".{0,40}",
        result in ".{0,40}",
        before in proptest::collection::vec((1_u32..110, 1_u32..4), 0..5),
        run in any::<[u8; 16]>(),
    ) {
        let messages = conversation(&input, &[&result]);
        let request = model_request(turn, attempt, messages);
        let fresh_answer = answer(&model(TIDY), &request).now_or_never().unwrap();
        let used_model = model(TIDY);
        for (turn, attempt) in before {
            let _ = answer(&used_model, &model_request(turn, attempt, conversation("other", &["x"]))).now_or_never();
        }
        let mut other_request = request;
        other_request.run = RunId::from_bytes(run);
        other_request.model = "scripted/other".into();
        other_request.system = StoredText::new_inline("12345678");
        let second_answer = answer(&used_model, &other_request).now_or_never().unwrap();
        prop_assert_eq!(fresh_answer, second_answer);
    }

    /// Text from people and tools is never compiled as a template, and is rendered unchanged.
    #[test]
    fn text_of_the_conversation_is_never_a_template(text in "[{}%# a-z_|'\"]{1,40}") {
        prop_assume!(serde_json::from_str::<serde_json::Value>(&text).is_err());
        let script = "replies: [{ text: '{{ input }}+{{ last_result }}' }]";
        let request = model_request(1, 1, conversation(&text, &[&text]));
        let response = answer(&model(script), &request).now_or_never().unwrap().unwrap();
        prop_assert_eq!(response.reply.text(), format!("{text}+{text}"));
    }

    #[test]
    fn parsing_a_script_does_not_panic_and_its_errors_are_short(text in "(replies:\n)?[ a-z:\\[\\]{}'\"&*%!#|>\n-]{0,120}") {
        if let Err(error) = longhaul_model::scripted::Script::parse_yaml("x.yaml", &text) {
            prop_assert!(error.to_string().len() <= 1_000, "{error}");
        }
    }
}
