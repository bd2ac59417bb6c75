//! Bad and greedy clients: each is ended or gets an error, and the others are served on.

use std::time::Duration;

use lrs::proto;
use lrs::publish::EventRing;
use lrs::serve::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use crate::bench::{Bench, soon};

fn bench(limits: Limits) -> Bench {
    Bench::with(limits, EventRing::new(10, []))
}

async fn still_serves(bench: &Bench) {
    let mut client = bench.client().await;
    soon(client.get_status(proto::GetStatusRequest {})).await.unwrap();
}

/// Everything until the server closes.
async fn until_closed(stream: &mut UnixStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match soon(stream.read_to_end(&mut rest)).await {
        Ok(_) => rest,
        // The kernel says so when the server had not read all we sent (unix(7)).
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => rest,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_client_that_says_nothing_is_closed() {
    let bench = bench(Limits { first_words: Duration::from_millis(50), ..Limits::default() });
    let mut silent = UnixStream::connect(&bench.path).await.unwrap();
    let mut half = UnixStream::connect(&bench.path).await.unwrap();
    half.write_all(b"PRI * HTTP").await.unwrap();
    let mut speaking = bench.client().await;
    until_closed(&mut silent).await;
    until_closed(&mut half).await;
    // Slower than the limit, but it has spoken.
    tokio::time::sleep(Duration::from_millis(60)).await;
    speaking.get_status(proto::GetStatusRequest {}).await.unwrap();
    still_serves(&bench).await;
}

#[tokio::test]
async fn a_client_that_answers_no_ping_is_closed() {
    let keepalive = (Duration::from_millis(50), Duration::from_millis(50));
    let bench = bench(Limits { keepalive, ..Limits::default() });
    let mut mute = UnixStream::connect(&bench.path).await.unwrap();
    mute.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    until_closed(&mut mute).await;
    still_serves(&bench).await;
}

#[tokio::test]
async fn garbage_is_closed() {
    let bench = bench(Limits::default());
    let mut frame_of_16_mib = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame_of_16_mib.extend([0xff; 64]);
    for garbage in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0; 100],
        vec![0xff; 1 << 16],
        frame_of_16_mib,
    ] {
        let mut stream = UnixStream::connect(&bench.path).await.unwrap();
        // The server may close before it has taken all of it.
        let _ = stream.write_all(&garbage).await;
        until_closed(&mut stream).await;
    }
    still_serves(&bench).await;
}

#[tokio::test]
async fn a_malformed_message_is_an_error_of_its_call() {
    let mut bench = bench(Limits::default());
    let mut grpc = tonic::client::Grpc::new(bench.channel().await);
    grpc.ready().await.unwrap();
    // Field 1 is a string here and a number there.
    let codec: ProstCodec<proto::GetTaskRequest, proto::AdmitResponse> = ProstCodec::default();
    let request = Request::new(proto::GetTaskRequest { id: "abc".into() });
    let path = PathAndQuery::from_static("/lrs.v1.Shaper/Admit");
    let error = grpc.unary(request, path, codec).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    assert!(error.message().contains("not the message of this call"), "{error}");
    assert!(bench.commands.try_recv().is_err());
    still_serves(&bench).await;
}

/// The status of a call with this body; `grpc` is of the same connection.
async fn answer(bench: &Bench, path: &str, body: &[u8]) -> (String, String) {
    let stream = UnixStream::connect(&bench.path).await.unwrap();
    let (mut requests, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .unwrap();
    let connection = tokio::spawn(connection);
    let request = hyper::Request::post(format!("http://lrs{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(http_body_util::Full::new(hyper::body::Bytes::copy_from_slice(body)))
        .unwrap();
    let response = soon(requests.send_request(request)).await.unwrap();
    connection.abort();
    let header = |name: &str| {
        let value = response.headers().get(name);
        value.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    (header("grpc-status"), header("grpc-message"))
}

#[tokio::test]
async fn a_body_that_is_no_message_is_the_clients_fault() {
    let mut bench = bench(Limits::default());
    for path in ["Admit", "Reserve", "GetTask", "WatchEvents"] {
        let path = format!("/lrs.v1.Shaper/{path}");
        for body in [
            &b""[..],
            b"\0\0",
            b"\x01\0\0\0\0",
            b"\0\0\0\0\x05abc",
            b"\0\0\0\0\x01\x08abc",
            b"\0\0\0\0\x02\x0f\x01",
            b"\0\0\0\0\x03\xff\xff\xff",
        ] {
            let (status, message) = answer(&bench, &path, body).await;
            assert_eq!(status, "3", "{path} {body:?}: {message}");
        }
    }
    assert!(bench.commands.try_recv().is_err());
    still_serves(&bench).await;
}

#[tokio::test]
async fn an_oversized_message_is_an_error_of_its_call() {
    let mut bench = bench(Limits::default());
    let mut client = bench.client().await;
    for bytes in [100 << 10, 64 << 20] {
        let request = proto::AdmitRequest { name: Some("x".repeat(bytes)), ..Default::default() };
        let error = soon(client.admit(request)).await.unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange, "{error}");
        client.get_status(proto::GetStatusRequest {}).await.unwrap();
    }
    assert!(bench.commands.try_recv().is_err());
}

#[tokio::test]
async fn unknown_services_and_methods_are_unimplemented() {
    let bench = bench(Limits::default());
    let mut grpc = tonic::client::Grpc::new(bench.channel().await);
    for path in ["/lrs.v1.Shaper/Nope", "/lrs.v2.Shaper/GetStatus", "/", "/x"] {
        grpc.ready().await.unwrap();
        let codec: ProstCodec<proto::GetStatusRequest, proto::Status> = ProstCodec::default();
        let request = Request::new(proto::GetStatusRequest {});
        let error = grpc.unary(request, PathAndQuery::from_static(path), codec).await.unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented, "{path}: {error}");
    }
}

#[tokio::test]
async fn too_many_connections_are_reported_and_closed() {
    // Root gets all 16, any other user 4.
    let bench = bench(Limits { connections: 16, ..Limits::default() });
    let mut held = Vec::new();
    let refused = loop {
        let mut client = bench.client().await;
        match soon(client.get_status(proto::GetStatusRequest {})).await {
            Ok(_) => held.push(client),
            Err(refused) => break refused,
        }
        assert!(held.len() <= 16);
    };
    let root = rustix::process::geteuid().is_root();
    assert_eq!(held.len(), if root { 16 } else { 4 });
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("too many connections"), "{refused}");

    // One that asks nothing is closed all the same.
    let mut stream = UnixStream::connect(&bench.path).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    until_closed(&mut stream).await;
    drop(held);
    // The places come free when the server sees the ends.
    soon(async {
        while bench.client().await.get_status(proto::GetStatusRequest {}).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn too_many_calls_are_reported() {
    let bench = bench(Limits { calls: 4, ..Limits::default() });
    let mut client = bench.client().await;
    let mut held = Vec::new();
    let error = loop {
        match client.watch_status(proto::WatchStatusRequest {}).await {
            Ok(stream) => held.push(stream),
            Err(error) => break error,
        }
        assert!(held.len() <= 4);
    };
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("too many calls"), "{error}");
    drop(held);
    soon(async {
        while client.get_status(proto::GetStatusRequest {}).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
