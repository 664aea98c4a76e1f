use crate::{ErrorObject, Id, RawJson};

/// Content of one frame.
#[derive(Clone, Debug)]
pub enum Payload {
    /// One message, or something that is JSON but no message.
    Single(Result<Message, Invalid>),
    /// An array of them; never empty.
    Batch(Vec<Result<Message, Invalid>>),
}

/// One JSON-RPC message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Asks for an answer.
    Request(Request),
    /// Asks for none.
    Notification(Notification),
    /// Is one.
    Response(Response),
}

/// A call that is to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Ties the answer to it.
    pub id: Id,
    /// Name of the method.
    pub method: String,
    /// With what; an object or an array. Absent and null parameters are the empty object.
    pub params: RawJson,
}

/// A call that is not to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Name of the method.
    pub method: String,
    /// With what; an object or an array. Absent and null parameters are the empty object.
    pub params: RawJson,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The request's id. `None` when an error cannot be tied to a request, because the request's id
    /// could not be read; it is left out of the encoded message.
    pub id: Option<Id>,
    /// The result, or why there is none.
    pub outcome: Result<RawJson, ErrorObject>,
}

/// JSON that is no JSON-RPC message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Id of the message, if that much could be read: the error can then be tied to what caused it.
    pub id: Option<Id>,
    /// Error that says what was wrong, and where.
    pub error: ErrorObject,
}
