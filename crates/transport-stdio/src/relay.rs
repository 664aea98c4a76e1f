//! A client whose server is another process.
//!
//! Lines go to the owner of the server and back. When the owner ends, another process becomes the owner,
//! perhaps this one; the relay connects to it, tells it what the client had agreed on, sends requests
//! again that may be sent twice, and answers the others. So it does when the owner gives no sign of life.

use crate::{
    lines::{Line, Lines},
    share::{JoinError, Joined, Ownership, SharedSocket},
};
use bytes::{Buf, Bytes, BytesMut};
use jsonrpc_core::{
    DecodeError, ErrorCode, ErrorObject, Id, Limits, Message, Payload, RawJson, Request, Response,
    decode, encode,
};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    pin::{Pin, pin},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};

/// Options of a relay.
#[derive(Clone, Copy, Debug)]
pub struct RelayOptions {
    /// The longest line that is taken from the client.
    pub max_line: usize,
    /// Most bytes that wait in either direction. Beyond that, nothing more is read.
    pub max_waiting: usize,
    /// Answers calls that were lost with their owner by results, which models read, instead of errors.
    pub lost_calls_as_results: bool,
}

/// The client cannot be served any more.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// Answers cannot be delivered.
    #[error("the output cannot be written")]
    Output(#[source] io::Error),
    /// There is no owner, and this process cannot become it.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// Requests that do no harm if they arrive twice. Every other one may have had its effect when its owner
/// was lost.
const REPEATABLE: [&str; 17] = [
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "subscriptions/listen",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tools/list",
];

const LOST: &str = "the server process that had this request ended before it answered: the call may \
                    have run; look for it in the ledger before calling again";

const SILENT: &str = "the server process that has this request does not respond: the call may have run, or run \
                      yet; look for it in the ledger before calling again";

const NOT_RUN: &str = "the server process ended, and the client before there was another: the request was \
                       not carried out";

/// Relays one client, first over `stream`, until its input ends or `stop` resolves, and everything is
/// answered.
///
/// When the owner is lost, or is silent while something is to come from it, `greeting` is called for a
/// new connection. If this process becomes the owner, the ownership is sent to `owner`: its receiver must
/// start to serve guests, of whom this relay is then one.
///
/// # Errors
///
/// [`RelayError`]. What was lost with an owner is answered before.
#[expect(clippy::too_many_arguments, reason = "each is of another kind")]
pub async fn relay(
    socket: &SharedSocket,
    stream: UnixStream,
    greeting: impl Fn() -> Vec<u8>,
    owner: mpsc::Sender<Ownership>,
    input: impl AsyncRead,
    output: impl AsyncWrite,
    stop: impl Future<Output = ()>,
    options: RelayOptions,
) -> Result<(), RelayError> {
    let join = || async {
        let greeting = greeting();
        loop {
            match socket.join(&greeting).await? {
                Joined::Relayed(stream) => return Ok::<_, JoinError>(stream),
                // Without a receiver the process is ending.
                Joined::Owner(ownership) => {
                    if owner.send(ownership).await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            }
        }
    };
    let (mut input, mut output, mut stop) = (pin!(input), pin!(output), pin!(stop));
    let mut relay = Relay::new(options);
    let mut from_client = Lines::new(options.max_line);
    let mut from_owner = Lines::new(usize::MAX);
    let (reader, writer) = stream.into_split();
    let mut reader: Option<OwnedReadHalf> = Some(reader);
    let mut writer: Option<OwnedWriteHalf> = Some(writer);
    let mut joining = pin!(None);
    let mut silence = pin!(None);
    loop {
        if relay.ended && reader.is_none() {
            // The client does not wait for another owner.
            relay.give_up(NOT_RUN);
            joining.set(None);
        } else if relay.ended && relay.queue.is_empty() {
            // Shutting it down tells the owner that nothing more comes.
            writer = None;
        }
        let is_over = reader.is_none() && joining.is_none();
        if is_over && relay.unsent.is_empty() {
            return Ok(());
        }
        if reader.is_none() || !relay.awaits() {
            silence.set(None);
        } else if silence.is_none() {
            silence.set(Some(socket.silence()));
        }
        let has_room = relay.queued < options.max_waiting;
        let has_unsent_room = relay.unsent.len() < options.max_waiting;
        tokio::select! {
            read = input.read_buf(from_client.room()), if !relay.ended && has_room => {
                let ended = !matches!(read, Ok(1..));
                while let Some(line) = from_client.next() {
                    relay.take(line);
                }
                if ended {
                    if let Some(line) = from_client.rest() {
                        relay.take(line);
                    }
                    relay.ended = true;
                }
            }
            () = &mut stop, if !relay.ended => relay.ended = true,
            read = read_some(&mut reader, from_owner.room()), if has_unsent_room => {
                silence.set(None);
                while let Some(Line::Whole(line)) = from_owner.next() {
                    relay.give(&line);
                }
                if !matches!(read, Ok(1..)) {
                    from_owner = Lines::new(usize::MAX);
                    (reader, writer) = (None, None);
                    relay.lose(LOST);
                    joining.set((!relay.ended).then(&join));
                }
            }
            () = end_of(silence.as_mut()), if silence.is_some() => {
                from_owner = Lines::new(usize::MAX);
                (reader, writer) = (None, None);
                relay.lose(SILENT);
                joining.set((!relay.ended).then(&join));
            }
            written = write_some(&mut writer, relay.front()), if !relay.queue.is_empty() => {
                match written {
                    Ok(count) => relay.sent(count),
                    // The owner takes no more. What it still says is read to its end.
                    Err(_) => writer = None,
                }
            }
            joined = end_of(joining.as_mut()), if joining.is_some() => {
                joining.set(None);
                match joined {
                    Ok(stream) => {
                        let (read, write) = stream.into_split();
                        (reader, writer) = (Some(read), Some(write));
                    }
                    Err(error) => {
                        relay.give_up(&error.to_string());
                        let _ = output.write_all(&relay.unsent).await;
                        let _ = output.flush().await;
                        return Err(error.into());
                    }
                }
            }
            written = output.write(&relay.unsent), if !relay.unsent.is_empty() => {
                let count = written.map_err(RelayError::Output)?;
                if count == 0 {
                    return Err(RelayError::Output(io::ErrorKind::WriteZero.into()));
                }
                relay.unsent.advance(count);
                if relay.unsent.is_empty() {
                    output.flush().await.map_err(RelayError::Output)?;
                }
            }
        }
    }
}

async fn read_some(reader: &mut Option<OwnedReadHalf>, room: &mut BytesMut) -> io::Result<usize> {
    match reader {
        Some(reader) => reader.read_buf(room).await,
        None => std::future::pending().await,
    }
}

async fn write_some(writer: &mut Option<OwnedWriteHalf>, bytes: &[u8]) -> io::Result<usize> {
    match writer {
        Some(writer) => writer.write(bytes).await,
        None => std::future::pending().await,
    }
}

async fn end_of<F: Future>(future: Pin<&mut Option<F>>) -> F::Output {
    match future.as_pin_mut() {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// A line of the client's that the owner has not got.
#[derive(Debug)]
struct Queued {
    /// With its end.
    line: Bytes,
    /// Set for a message that was sent to an earlier owner and whose answer was passed on.
    is_replay: bool,
}

/// A request that the owner has got and not answered.
#[derive(Debug)]
struct InFlight {
    order: u64,
    line: Bytes,
    is_repeatable: bool,
    /// A call, of a client that reads results.
    is_call: bool,
    is_modern: bool,
}

/// State that the client and the server have agreed on, which is repeated to another owner.
#[derive(Debug)]
struct Agreed {
    what: String,
    id: Option<Id>,
    line: Bytes,
}

#[derive(Debug)]
struct Relay {
    options: RelayOptions,
    /// Set at the end of the client's input.
    ended: bool,
    queue: VecDeque<Queued>,
    queued: usize,
    /// Bytes of the first queued line that were sent to the owner.
    offset: usize,
    in_flight: HashMap<Id, InFlight>,
    order: u64,
    agreed: Vec<Agreed>,
    /// Answers that the client has got before.
    known: HashSet<Id>,
    unsent: BytesMut,
}

impl Relay {
    fn new(options: RelayOptions) -> Self {
        Self {
            options,
            ended: false,
            queue: VecDeque::new(),
            queued: 0,
            offset: 0,
            in_flight: HashMap::new(),
            order: 0,
            agreed: Vec::new(),
            known: HashSet::new(),
            unsent: BytesMut::new(),
        }
    }

    /// Takes a line of the client.
    fn take(&mut self, line: Line) {
        match line {
            Line::Whole(line) => {
                // A copy, which does not keep alive what was read together with it.
                let line: Bytes = [&line[..], b"\n"].concat().into();
                self.queued += line.len();
                self.queue.push_back(Queued {
                    line,
                    is_replay: false,
                });
            }
            Line::TooLong(actual) => {
                let max = self.options.max_line;
                let error = DecodeError::TooLong { max, actual }.to_error_object();
                self.answer(None, Err(error));
            }
        }
    }

    /// Returns true if something is to come from the owner, or to be taken by it.
    fn awaits(&self) -> bool {
        self.ended || !self.in_flight.is_empty() || !self.queue.is_empty()
    }

    /// The next bytes to send; not empty if the queue is not.
    fn front(&self) -> &[u8] {
        let first = self.queue.front().map_or(&[][..], |first| &first.line);
        &first[self.offset..]
    }

    /// Takes note of what the owner has got. A line counts once it is whole.
    fn sent(&mut self, count: usize) {
        self.offset += count;
        if self.front().is_empty()
            && let Some(sent) = self.queue.pop_front()
        {
            self.offset = 0;
            self.queued -= sent.line.len();
            if !sent.is_replay {
                self.arrived(&sent.line);
            }
        }
    }

    /// Takes note of what is to be answered.
    fn arrived(&mut self, line: &Bytes) {
        match decode(line, wide()) {
            Ok(Payload::Single(Ok(message))) => self.noted(message, line, true),
            Ok(Payload::Batch(messages)) => {
                for message in messages.into_iter().flatten() {
                    self.noted(message, line, false);
                }
            }
            Ok(Payload::Single(Err(_))) | Err(_) => {}
        }
    }

    fn noted(&mut self, message: Message, line: &Bytes, is_alone: bool) {
        match message {
            Message::Request(request) => {
                if is_alone {
                    self.agree(&request, line);
                }
                let method = request.method.as_str();
                self.order += 1;
                let params = request.params.as_str();
                let in_flight = InFlight {
                    order: self.order,
                    line: line.clone(),
                    is_repeatable: is_alone && REPEATABLE.contains(&method),
                    is_call: method == "tools/call",
                    is_modern: params.contains("\"io.modelcontextprotocol/protocolVersion\""),
                };
                self.in_flight.insert(request.id, in_flight);
            }
            Message::Notification(notification) => match notification.method.as_str() {
                "notifications/initialized" => {
                    self.keep("initialized".to_owned(), None, line);
                }
                // It is answered no more; if it is all the same, that is passed on.
                "notifications/cancelled" => {
                    let params: Option<Value> = notification.params.parse().ok();
                    let id = params.map(|params| params["requestId"].to_string());
                    if let Some(id) = id.and_then(|id| Id::from_json(&id)) {
                        self.in_flight.remove(&id);
                    }
                }
                _ => {}
            },
            Message::Response(_) => {}
        }
    }

    fn agree(&mut self, request: &Request, line: &Bytes) {
        let id = Some(request.id.clone());
        let uri = || {
            let params: Option<Value> = request.params.parse().ok();
            format!("subscribe {}", params.unwrap_or_default()["uri"])
        };
        match request.method.as_str() {
            "initialize" => {
                self.agreed.clear();
                let params: Option<Value> = request.params.parse().ok();
                // The founding revision knows errors alone.
                if params.is_some_and(|params| params["protocolVersion"] == "1.0") {
                    self.options.lost_calls_as_results = false;
                }
                self.keep("initialize".to_owned(), id, line);
            }
            "logging/setLevel" => self.keep("level".to_owned(), id, line),
            "resources/subscribe" => self.keep(uri(), id, line),
            "resources/unsubscribe" => {
                let what = uri();
                self.agreed.retain(|agreed| agreed.what != what);
            }
            _ => {}
        }
    }

    fn keep(&mut self, what: String, id: Option<Id>, line: &Bytes) {
        let line = line.clone();
        match self.agreed.iter_mut().find(|agreed| agreed.what == what) {
            Some(agreed) => (agreed.id, agreed.line) = (id, line),
            None => self.agreed.push(Agreed { what, id, line }),
        }
    }

    /// Passes a line of the owner on.
    fn give(&mut self, line: &Bytes) {
        let ids: Vec<Id> = match decode(line, wide()) {
            Ok(Payload::Single(Ok(Message::Response(Response { id: Some(id), .. })))) => vec![id],
            Ok(Payload::Batch(messages)) => messages
                .into_iter()
                .filter_map(|message| match message {
                    Ok(Message::Response(response)) => response.id,
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        };
        for id in &ids {
            if self.in_flight.remove(id).is_none() && self.known.remove(id) {
                return;
            }
        }
        self.unsent.extend_from_slice(line);
        self.unsent.extend_from_slice(b"\n");
    }

    /// Puts what the next owner has to get in front, and answers what it must not get, with `why`.
    fn lose(&mut self, why: &'static str) {
        self.offset = 0;
        self.queue.retain(|queued| !queued.is_replay);
        let mut lost: Vec<(Id, InFlight)> = self.in_flight.drain().collect();
        lost.sort_by_key(|(_, request)| request.order);
        let mut again = VecDeque::new();
        for (id, request) in lost {
            if request.is_repeatable && !self.ended {
                again.push_back((id, request.line));
            } else {
                self.answer_lost(id, &request, why);
            }
        }
        let is_again = |id: &Option<Id>| again.iter().any(|(other, _)| Some(other) == id.as_ref());
        let replayed = self.agreed.iter().filter(|agreed| !is_again(&agreed.id));
        let replayed: Vec<Queued> = replayed
            .map(|agreed| Queued {
                line: agreed.line.clone(),
                is_replay: true,
            })
            .collect();
        self.known = self.agreed.iter().filter_map(|it| it.id.clone()).collect();
        self.known.retain(|id| !is_again(&Some(id.clone())));
        let again = again.into_iter().map(|(_, line)| Queued {
            line,
            is_replay: false,
        });
        let rest = std::mem::take(&mut self.queue);
        self.queue = replayed.into_iter().chain(again).chain(rest).collect();
        self.queued = self.queue.iter().map(|queued| queued.line.len()).sum();
    }

    fn answer_lost(&mut self, id: Id, request: &InFlight, why: &'static str) {
        let data = json!({
            "code": -32603, "details": why, "reason": "owner_lost", "retryable": false,
        });
        let outcome = if request.is_call && self.options.lost_calls_as_results {
            let mut result = json!({
                "content": [{"type": "text", "text": why}],
                "isError": true,
                "_meta": {"io.owlclaw/error": data},
            });
            if request.is_modern {
                result["resultType"] = json!("complete");
            }
            Ok(RawJson::from_serialized(result.to_string().into_bytes()))
        } else {
            Err(ErrorObject::new(ErrorCode::INTERNAL_ERROR, why).with(&data))
        };
        self.answer(Some(id), outcome);
    }

    /// Answers what no owner will get any more.
    fn give_up(&mut self, why: &str) {
        self.ended = true;
        let queued = std::mem::take(&mut self.queue);
        for queued in queued.into_iter().filter(|queued| !queued.is_replay) {
            let Ok(payload) = decode(&queued.line, wide()) else {
                continue;
            };
            let messages = match payload {
                Payload::Single(message) => vec![message],
                Payload::Batch(messages) => messages,
            };
            for message in messages.into_iter().flatten() {
                if let Message::Request(request) = message {
                    let error = ErrorObject::lasting(ErrorCode::INTERNAL_ERROR, why.to_owned());
                    self.answer(Some(request.id), Err(error));
                }
            }
        }
    }

    fn answer(&mut self, id: Option<Id>, outcome: Result<RawJson, ErrorObject>) {
        encode(
            &Message::Response(Response { id, outcome }),
            &mut self.unsent,
        );
        self.unsent.extend_from_slice(b"\n");
    }
}

/// The owner judges what it gets; here it only matters which requests there are.
fn wide() -> Limits {
    Limits {
        max_frame: usize::MAX,
        max_batch: usize::MAX,
        ..Limits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::PATIENCE;

    fn relay() -> Relay {
        Relay::new(RelayOptions {
            max_line: 1_000,
            max_waiting: 1_000,
            lost_calls_as_results: true,
        })
    }

    /// Sends lines of the client to the owner.
    fn say(relay: &mut Relay, lines: &[&'static str]) {
        for line in lines {
            relay.take(Line::Whole(Bytes::from_static(line.as_bytes())));
            while !relay.queue.is_empty() {
                relay.sent(relay.front().len());
            }
        }
    }

    fn queued(relay: &Relay) -> Vec<&str> {
        let lines = relay.queue.iter();
        lines
            .map(|it| std::str::from_utf8(&it.line).unwrap().trim_end())
            .collect()
    }

    fn told(relay: &mut Relay) -> Vec<Value> {
        let told = relay.unsent.split();
        let lines = std::str::from_utf8(&told).unwrap().lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    const LIST: &str = r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#;
    const CALL: &str = r#"{"jsonrpc":"2.0","id":12345678901234567890,"method":"tools/call","params":{"name":"x"}}"#;

    fn answered(id: &str) -> Bytes {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into()
    }

    #[test]
    fn the_handshake_is_repeated_to_a_new_owner_and_its_answer_swallowed() {
        let mut relay = relay();
        say(&mut relay, &[INITIALIZE]);
        relay.give(&answered("1"));
        say(&mut relay, &[INITIALIZED, LIST]);
        assert_eq!(told(&mut relay).len(), 1);
        for _ in 0..2 {
            relay.lose(LOST);
            assert_eq!(queued(&relay), [INITIALIZE, INITIALIZED, LIST]);
        }
        while !relay.queue.is_empty() {
            relay.sent(relay.front().len());
        }
        relay.give(&answered("1"));
        relay.give(&answered("\"l\""));
        let told = told(&mut relay);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["id"], "l");
        // An owner that is lost before it answered the handshake is followed by one that does.
        let mut relay = super::tests::relay();
        say(&mut relay, &[INITIALIZE]);
        relay.lose(LOST);
        assert_eq!(queued(&relay), [INITIALIZE]);
        say(&mut relay, &[]);
        while !relay.queue.is_empty() {
            relay.sent(relay.front().len());
        }
        relay.give(&answered("1"));
        assert_eq!(super::tests::told(&mut relay).len(), 1);
    }

    #[test]
    fn a_call_that_has_arrived_is_never_sent_again() {
        let mut relay = relay();
        say(&mut relay, &[CALL]);
        relay.lose(LOST);
        assert!(relay.queue.is_empty());
        let told = std::str::from_utf8(&relay.unsent).unwrap().to_owned();
        assert!(told.contains(r#""id":12345678901234567890"#), "{told}");
        assert!(told.contains(r#""isError":true"#), "{told}");
        // One whose line is not whole has not arrived.
        relay.unsent.clear();
        relay.take(Line::Whole(Bytes::from_static(CALL.as_bytes())));
        relay.sent(CALL.len());
        relay.lose(LOST);
        assert_eq!(queued(&relay), [CALL]);
        assert!(relay.unsent.is_empty());
        // Nor is a batch sent again that has one in it.
        let mut relay = super::tests::relay();
        say(
            &mut relay,
            &[
                r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/call"}]"#,
            ],
        );
        relay.lose(LOST);
        assert!(relay.queue.is_empty());
        assert_eq!(super::tests::told(&mut relay).len(), 2);
    }

    #[test]
    fn cancelled_calls_are_not_answered() {
        let mut relay = relay();
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345678901234567890}}"#;
        say(&mut relay, &[CALL, cancel]);
        relay.lose(LOST);
        assert!(relay.unsent.is_empty());
    }

    #[test]
    fn subscriptions_are_repeated_to_a_new_owner_until_they_end() {
        let mut relay = relay();
        let subscribe = r#"{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"skill://a/b"}}"#;
        let unsubscribe = r#"{"jsonrpc":"2.0","id":6,"method":"resources/unsubscribe","params":{"uri":"skill://a/b"}}"#;
        say(&mut relay, &[subscribe]);
        relay.give(&answered("5"));
        relay.lose(LOST);
        assert_eq!(queued(&relay), [subscribe]);
        say(&mut relay, &[unsubscribe]);
        relay.give(&answered("6"));
        relay.lose(LOST);
        assert!(queued(&relay).is_empty());
    }

    /// The end of a client's call by way of an owner that has it and is silent: what the client reads, and how the
    /// relay ends.
    async fn relayed(
        socket: &SharedSocket,
        owner: impl Future<Output = ()>,
    ) -> (Result<(), RelayError>, Vec<Value>) {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (mut client, input) = tokio::io::duplex(10_000);
        let (output, mut read) = tokio::io::duplex(10_000);
        client.write_all(CALL.as_bytes()).await.unwrap();
        client.write_all(b"\n").await.unwrap();
        let (sender, _ownerships) = mpsc::channel(1);
        let stop = std::future::pending();
        let options = relay().options;
        let relaying = super::relay(socket, ours, Vec::new, sender, input, output, stop, options);
        let ended = tokio::select! {
            ended = relaying => ended,
            () = owner => Ok(()),
        };
        let mut told = String::new();
        read.read_to_string(&mut told).await.unwrap();
        let told = told.lines().map(|line| serde_json::from_str(line).unwrap());
        (ended, told.collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_owner_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let socket = SharedSocket::new(directory.path().join("sock"));
        // It listens, and accepts nothing.
        let Joined::Owner(_frozen) = socket.join(b"").await.unwrap() else {
            panic!("there is no other");
        };
        let begun = tokio::time::Instant::now();
        let (ended, told) = relayed(&socket, std::future::pending()).await;
        assert!(
            matches!(ended, Err(RelayError::Join(JoinError::Silent { .. }))),
            "{ended:?}"
        );
        assert!(begun.elapsed() < 4 * PATIENCE, "{:?}", begun.elapsed());
        assert_eq!(told.len(), 1, "{told:?}");
        let about = &told[0]["result"]["_meta"]["io.owlclaw/error"];
        assert_eq!(
            (&about["reason"], &about["details"]),
            (&json!("owner_lost"), &json!(SILENT))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_is_busy_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let mut asked = 0;
        let owner = async {
            while asked < 20 {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"present\n").await.unwrap();
                asked += 1;
            }
        };
        let (ended, told) = relayed(&SharedSocket::new(path), owner).await;
        assert!(ended.is_ok() && told.is_empty(), "{ended:?} {told:?}");
    }
}
