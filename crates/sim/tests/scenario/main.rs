//! Scenario files: what is read from them, what is refused, and that what is written reads back.

mod good;
mod bad;
mod any_text;
mod shared_data;

/// A scenario with most keys.
const BASE: &str = r#"seed = 1
warmup = "5s"
duration = "60s"
policy = "weft"
rate = 3000
noise = 0.0

[cluster]
gpus = 8

[network]
control = "10us"

[arrivals]
kind = "poisson"

[[model]]
name = "resnet50"
slo = "25ms"
latency = { alpha = "1.053ms", beta = "5.072ms" }
"#;

/// The files that scenarios here name.
fn read(path: &str) -> Result<String, String> {
    let text = match path {
        "empty" => "",
        "prose" => "Once upon a time\nthere was a GPU.\n",
        "good.csv" => "Mig instance,Batch size,Workload Number,Throughput,Latency\n7,1,1,200,0\n7,8,1,1000,0\n",
        "cut.csv" => "Mig instance,Batch size,Workload Number,Throughput,Latency\n7,1,1,200,0\n7,8,1",
        "zoo.csv" => {
            "model,gpu,runtime,alpha_ms,beta_ms,floor_ms,alpha_tail_ms,beta_tail_ms,source\n\
             bert,A100,\"X, Y\",0.3,1.5,2.0,0.4,1.0,s\n"
        }
        "shares.csv" => "1.0,50.0,0.010,100\n1.0,100.0,0.004,250\n2.0,100.0,0.006,333\n",
        "azure.csv" => {
            "HashOwner,HashApp,HashFunction,Trigger,480,481\na,b,c,http,60,0\nd,e,f,timer,1,3\ng,h,i,queue,30,26\n"
        }
        "azure-cut.csv" => "HashOwner,HashApp,HashFunction,Trigger,480,481\na,b,c,http,60,0\nd,e,f,timer,1",
        "azure-text.csv" => "HashOwner,HashApp,HashFunction,Trigger,480,481\na,b,c,http,60,many\n",
        "azure-header.csv" => "HashOwner,HashApp,HashFunction,Trigger,480,481\n",
        "rates.txt" => "1\n3\n\n2\n",
        "below.txt" => "1\n-1\n",
        "huge.txt" => "1e11\n",
        "good.txt" | "workloads/good.txt" => "# two kinds\n1.053 5.072 25 1\n\n0.5 5 25 3\n1.053 5.072 50 4\n",
        "cut.txt" => "1.053 5.072 25 1\n1.053 5.0",
        "text.txt" => "1.053 5.072 soon 1\n",
        "negative.txt" => "# below zero\n-1 1 25 1\n",
        "weightless.txt" => "1.053 5.072 25 0\n",
        "late.txt" => "1.053 5.072 25 1\n1.053 5.072 6 1\n",
        _ => return Err("No such file or directory (os error 2)".to_owned()),
    };
    Ok(text.to_owned())
}
