//! Many requests on one call.

use crate::{number, request, start};
use rpc::inference::infer_parameter::ParameterChoice;
use rpc::inference::{InferParameter, ModelInferRequest, ModelStreamInferResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};

fn named(model: &str, id: &str) -> ModelInferRequest {
    ModelInferRequest { id: id.into(), ..request(model) }
}

fn id(answer: &ModelStreamInferResponse) -> &str {
    &answer.infer_response.as_ref().unwrap().id
}

#[tokio::test]
async fn answers_come_as_they_are_done_and_errors_do_not_end_the_stream() {
    let (running, mut client) = start().await;
    let requests = [
        named("held", "held"),
        named("fails", "fails"),
        named("nobody", "unknown"),
        named("late", "late"),
        named("echo", "echo"),
    ];
    let mut answers = client.model_stream_infer(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let mut all = vec![];
    while let Some(answer) = answers.message().await.unwrap() {
        all.push(answer);
        if all.len() == 4 {
            running.held.send_replace(false);
        }
    }
    assert_eq!(all.len(), 5);
    assert_eq!(id(all.last().unwrap()), "held");
    let find = |wanted: &str| all.iter().find(|answer| id(answer) == wanted).unwrap();
    assert_eq!(find("fails").error_message, "model `fails`: ValueError: no");
    assert_eq!(find("unknown").error_message, "unknown model `nobody`");
    assert!(find("late").error_message.contains("try again in 12 ms"));
    for good in ["echo", "held"] {
        let answer = find(good);
        assert_eq!(answer.error_message, "");
        let response = answer.infer_response.as_ref().unwrap();
        assert_eq!(response.raw_output_contents, [crate::floats()]);
        let last = response.parameters["triton_final_response"].parameter_choice.clone();
        assert_eq!(last, Some(ParameterChoice::BoolParam(true)));
    }
}

#[tokio::test]
async fn requests_of_a_stream_run_at_the_same_time() {
    let (running, mut client) = start().await;
    let requests = (0..50).map(|number| named("held", &number.to_string())).collect::<Vec<_>>();
    let mut answers = client.model_stream_infer(tokio_stream::iter(requests)).await.unwrap().into_inner();
    // All of them have arrived before the first is answered.
    running.arrived(50).await;
    running.held.send_replace(false);
    let mut count = 0;
    while answers.message().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 50);
}

#[tokio::test]
async fn an_error_ends_the_stream_where_the_client_asks_for_that() {
    let (_running, mut client) = start().await;
    let mut call = Request::new(tokio_stream::iter([named("nobody", "1")]));
    call.metadata_mut().insert("triton_grpc_error", "true".parse().unwrap());
    let mut answers = client.model_stream_infer(call).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn an_empty_final_answer_is_never_needed() {
    let (_running, mut client) = start().await;
    let ask = |parameter: InferParameter| {
        let mut request = named("echo", "1");
        request.parameters.insert("triton_enable_empty_final_response".into(), parameter);
        request
    };
    let flag = InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(true)) };
    let call = tokio_stream::iter([ask(flag)]);
    let mut answers = client.model_stream_infer(call).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().error_message, "");
    assert_eq!(answers.message().await.unwrap(), None);
    let call = tokio_stream::iter([ask(number(1))]);
    let mut answers = client.model_stream_infer(call).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().unwrap().error_message.contains("neither true nor false"));
}

#[tokio::test]
async fn a_server_that_stops_answers_what_it_has_read_and_ends_its_streams() {
    let (mut running, mut client) = start().await;
    let (sender, receiver) = mpsc::channel(4);
    sender.send(named("held", "1")).await.unwrap();
    let mut answers = client.model_stream_infer(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    running.arrived(1).await;
    running.stop.take().unwrap().send(()).unwrap();
    running.held.send_replace(false);
    assert_eq!(id(&answers.message().await.unwrap().unwrap()), "1");
    assert_eq!(answers.message().await.unwrap(), None);
    drop((answers, client, sender));
    running.ended().await;
}
