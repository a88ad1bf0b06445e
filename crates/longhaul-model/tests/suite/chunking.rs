//! Streams split into chunks at every byte, and streams truncated at every byte.

use super::wires::WIRES;
use crate::suite::fixtures::{hello_messages, model_request};
use crate::suite::harness::{
    LAST_CHUNK, STREAM_HEAD, Server, ServerAction, TextSink, chunk, stream_response,
};

/// Number of bytes between two splits of the same response.
const STRIDE: usize = 64;

/// A short reply of each API, and the event that completes it.
pub(crate) const SHORT_STREAMS: [(&str, &str); 3] = [
    (
        r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"clock"}}

event: content_block_delta
data: {"index":1,"delta":{"type":"text_delta","text":"é 🙂"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}

: hm
data: {"type":"message_stop"}

"#,
        "message_stop",
    ),
    (
        r#"data: {"choices":[{"delta":{"content":"é 🙂"}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"clock","arguments":"{"}}]}}]}

: hm
data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]},"finish_reason":"stop"}]}

data: [DONE]

"#,
        r#""stop""#,
    ),
    (
        r#"event: response.output_text.delta
data: {"output_index":0,"delta":"é 🙂"}

data: {"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"t","name":"clock"}}

: hm
data: {"type":"response.function_call_arguments.delta","output_index":1,"delta":"{}"}

data: {"type":"response.completed"}

"#,
        "response.completed",
    ),
];

/// Returns a stream in two chunks, split at this byte.
fn split_at(bytes: &[u8], at: usize) -> Vec<ServerAction> {
    let (before, after) = bytes.split_at(at);
    let head = [STREAM_HEAD.as_bytes(), &chunk(before)].concat();
    vec![
        ServerAction::Send(head),
        ServerAction::Send([&chunk(after), LAST_CHUNK.as_bytes()].concat()),
    ]
}

/// Returns copies of a stream that together are split at every byte. The last ones have one byte
/// per chunk, and Windows line endings.
pub(crate) fn split_everywhere(stream: &str) -> Vec<Vec<ServerAction>> {
    let split = |first: usize, stride: usize| {
        let (before, after) = stream.as_bytes().split_at(first);
        let pieces = std::iter::once(before).chain(after.chunks(stride));
        let pieces: Vec<u8> = pieces.flat_map(chunk).collect();
        let answer = [STREAM_HEAD.as_bytes(), &pieces, LAST_CHUNK.as_bytes()].concat();
        vec![ServerAction::Send(answer)]
    };
    let crlf = stream.replace('\n', "\r\n");
    let crlf = stream_response(format!("\u{feff}: hi\r\n\r\n{crlf}").as_bytes());
    let strides = (0..STRIDE).map(|first| split(first, STRIDE));
    let unsplit = split(0, stream.len());
    [unsplit].into_iter().chain(strides).chain([split(0, 1), crlf]).collect()
}

/// Returns a stream with one wrong byte, at a position that depends on `round`.
pub(crate) fn corrupted_stream(stream: &str, round: usize) -> Vec<u8> {
    let mut bytes = stream.as_bytes().to_vec();
    let index = round * 7_919 % bytes.len();
    let alphabet = br#"{}[]",:0x\ "#;
    bytes[index] = match round % 4 {
        0 => alphabet[round % alphabet.len()],
        1 => bytes[index] ^ 0x20,
        2 => b'\n',
        // Half of these are not valid UTF-8.
        _ => (round * 31 % 256) as u8,
    };
    bytes
}

#[tokio::test]
async fn a_short_stream_decodes_the_same_however_it_is_chunked() {
    for ((name, model), (stream, _)) in WIRES.into_iter().zip(SHORT_STREAMS) {
        let bytes = stream.as_bytes();
        let plans = (0..=bytes.len()).map(|at| split_at(bytes, at));
        let server = Server::new(plans.collect()).await;
        let model = model(&server);
        let mut first = None;
        for at in 0..=bytes.len() {
            let sink = TextSink::default();
            let response = model.generate(&model_request(&hello_messages()), &sink).await;
            let response = response.unwrap_or_else(|error| panic!("{name} at {at}: {error:?}"));
            assert_eq!(sink.text(), "é 🙂", "{name} at {at}");
            assert_eq!(response.reply.blocks.len(), 2, "{name} at {at}");
            let first = first.get_or_insert_with(|| response.clone());
            assert_eq!(&response, first, "{name} at {at}");
        }
        assert_eq!(server.connections(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_truncated_short_stream_is_a_complete_reply_or_an_error() {
    for ((name, model), (stream, end)) in WIRES.into_iter().zip(SHORT_STREAMS) {
        let bytes = stream.as_bytes();
        let plans = (0..=bytes.len()).rev();
        let plans = plans.map(|length| stream_response(&bytes[..length]));
        let server = Server::new(plans.collect()).await;
        let model = model(&server);
        let complete_response =
            model.generate(&model_request(&hello_messages()), &TextSink::default()).await;
        let complete_response = complete_response.unwrap();
        for length in (0..bytes.len()).rev() {
            match model.generate(&model_request(&hello_messages()), &TextSink::default()).await {
                Ok(response) => {
                    assert!(length > stream.rfind(end).unwrap(), "{name} {length}");
                    assert_eq!(response, complete_response, "{name} {length}");
                }
                Err(failure) => {
                    let class = failure.class.as_str();
                    assert_eq!(class, "network", "{name} {length}: {failure:?}");
                    assert_eq!(failure.request_id.as_deref(), Some("req_7"));
                    let usage = failure.usage.unwrap();
                    assert!(usage.estimated && usage.input_tokens > 0, "{usage:?}");
                }
            }
        }
    }
}
