//! Where an answer goes, and the message it becomes.

use zbus::message::{Flags, Message};
use zbus::zvariant::{StructureBuilder, Value};

use super::error::CallError;
use crate::command::{CommandError, ErrorKind};

/// What a call is answered with: the arguments of the reply.
pub(super) type Answer = Result<Vec<Value<'static>>, CallError>;

/// A bus disconnects who sends more than its limit, 32 MiB for dbus-daemon's system bus.
const MAX_ANSWER_BYTES: usize = 24 << 20;

/// What is kept of a call while its answer is being waited for: neither its arguments nor the
/// descriptors that came with it.
#[derive(Clone, Debug)]
pub(super) struct ReplyTo {
    /// The call without its body: replies are made from a header, and a header lives in a
    /// message.
    call: Message,
}

impl ReplyTo {
    /// Of this call.
    ///
    /// # Errors
    /// zbus cannot repeat what it has read, which no call has been seen to cause.
    pub(super) fn of(call: &Message) -> zbus::Result<ReplyTo> {
        let header = call.header();
        let mut kept = Message::method_call("/", "Call")?
            .serial(header.primary().serial_num())
            .endian(header.primary().endian_sig().into());
        for flag in header.primary().flags() {
            kept = kept.with_flags(flag)?;
        }
        if let Some(sender) = header.sender() {
            kept = kept.sender(sender)?;
        }
        Ok(ReplyTo { call: kept.build(&())? })
    }

    /// Whether lrsd may have a person asked for a password.
    pub(super) fn interactive(&self) -> bool {
        self.call.primary_header().flags().contains(Flags::AllowInteractiveAuth)
    }

    /// The reply; `None` where none is wanted.
    ///
    /// # Errors
    /// Not even an error message can be made.
    pub(super) fn message(&self, answer: Answer) -> zbus::Result<Option<Message>> {
        if self.call.primary_header().flags().contains(Flags::NoReplyExpected) {
            return Ok(None);
        }
        let error = match answer.map(|values| self.values(values)) {
            Ok(Ok(reply)) if reply.data().len() <= MAX_ANSWER_BYTES => return Ok(Some(reply)),
            Ok(Ok(reply)) => CallError::limits_exceeded(format!(
                "the answer has {} bytes, more than a bus carries; ask for single tasks, or for \
                 pages over gRPC",
                reply.data().len()
            )),
            Ok(Err(error)) => {
                tracing::error!(%error, "no answer was made, please report this: {error}");
                CommandError::new(ErrorKind::Internal, format!("no answer was made: {error}"))
                    .into()
            }
            Err(error) => error,
        };
        let reply = Message::error(&self.call.header(), error.name)?;
        match error.task {
            None => reply.build(&(error.message,)),
            Some(task) => reply.build(&(error.message, task)),
        }
        .map(Some)
    }

    fn values(&self, values: Vec<Value<'static>>) -> zbus::Result<Message> {
        let reply = Message::method_return(&self.call.header())?;
        if values.is_empty() {
            return reply.build(&());
        }
        let body = values
            .into_iter()
            .fold(StructureBuilder::new(), |body, value| body.append_field(value))
            .build()?;
        reply.build(&body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::TaskId;

    fn call(flags: Option<Flags>) -> Message {
        let call = Message::method_call("/x", "Y").unwrap().sender(":1.7").unwrap();
        let call = flags.into_iter().fold(call, |call, flag| call.with_flags(flag).unwrap());
        call.build(&("x".repeat(10_000),)).unwrap()
    }

    #[test]
    fn an_answer_finds_its_call_without_its_body() {
        let call = call(None);
        let to = ReplyTo::of(&call).unwrap();
        assert!(to.call.data().len() < 200);
        let reply = to.message(Ok(vec![Value::from("a"), Value::from(1u32)])).unwrap().unwrap();
        assert_eq!(reply.header().reply_serial(), Some(call.primary_header().serial_num()));
        assert_eq!(reply.header().destination().unwrap().as_str(), ":1.7");
        assert_eq!(reply.body().signature().to_string_no_parens(), "su");
    }

    #[test]
    fn flags_are_kept() {
        let to = ReplyTo::of(&call(Some(Flags::NoReplyExpected))).unwrap();
        assert!(to.message(Ok(Vec::new())).unwrap().is_none() && !to.interactive());
        assert!(ReplyTo::of(&call(Some(Flags::AllowInteractiveAuth))).unwrap().interactive());
    }

    #[test]
    fn errors_are_short_and_name_the_task() {
        let to = ReplyTo::of(&call(None)).unwrap();
        let long = CallError::invalid_arguments("ü".repeat(1 << 20));
        assert!(to.message(Err(long)).unwrap().unwrap().data().len() < 5000);
        let task = TaskId { epoch: 1, number: 2 };
        let there = CommandError::new(ErrorKind::AlreadyExists(task), "there");
        let reply = to.message(Err(there.into())).unwrap().unwrap();
        let told: (String, String) = reply.body().deserialize().unwrap();
        assert_eq!(told, ("there".to_owned(), task.to_string()));
    }
}
