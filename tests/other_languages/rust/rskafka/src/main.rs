// rskafka: copies a partition, and goes on behind the last record that it finds in the copy.
use std::time::Duration;

use rskafka::client::{
    Client, ClientBuilder,
    partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling},
};

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let [bootstrap, _, source, target] = std::env::args().skip(1).take(4).collect::<Vec<_>>().try_into().unwrap();
    let client = ClientBuilder::new(bootstrap.split(',').map(str::to_owned).collect()).build().await?;
    let (source, target) = (partition(&client, source).await?, partition(&client, target).await?);
    let mut next = copied(&target).await?;
    loop {
        let (found, _) = source.fetch_records(next, 1..1_000, 100).await?;
        for read in found {
            target.produce(vec![read.record], Compression::NoCompression).await?;
            next = read.offset + 1;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn partition(client: &Client, topic: String) -> Result<PartitionClient, Failure> {
    Ok(client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?)
}

// The offset of the first number that is not in the copy: each number is the offset of its record.
async fn copied(target: &PartitionClient) -> Result<i64, Failure> {
    let end = target.get_offset(OffsetAt::Latest).await?;
    if end == 0 {
        return Ok(0);
    }
    let (last, _) = target.fetch_records(end - 1, 1..1_000_000, 1_000).await?;
    let number = last.last().and_then(|read| read.record.value.clone()).unwrap();
    Ok(String::from_utf8(number)?.parse::<i64>()? + 1)
}
