//! A service to be tested: it reads orders from one topic, and writes the total of each customer to another.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Message};
use serde_json::{json, Value};

/// Reads `count` orders of `source`, writes one record a customer to `target`, and returns the totals.
pub async fn total_orders(
    bootstrap_servers: &str,
    source: &str,
    target: &str,
    count: usize,
) -> Result<BTreeMap<String, f64>, Box<dyn Error>> {
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap_servers)
        .set("group.id", "totals-rust")
        .set("auto.offset.reset", "earliest")
        .create()?;
    consumer.subscribe(&[source])?;
    let mut totals = BTreeMap::new();
    for _ in 0..count {
        let message = consumer.recv().await?;
        let order: Value = serde_json::from_slice(message.payload().unwrap_or_default())?;
        let customer = order["customer"].as_str().ok_or("an order without a customer")?;
        *totals.entry(customer.to_owned()).or_insert(0.0) += order["amount"].as_f64().unwrap_or_default();
    }
    consumer.commit_consumer_state(CommitMode::Sync)?;

    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap_servers)
        .set("enable.idempotence", "true")
        .create()?;
    for (customer, total) in &totals {
        let value = json!({ "total": total }).to_string();
        let record = FutureRecord::to(target).key(customer).payload(&value);
        producer.send(record, Duration::from_secs(30)).await.map_err(|(error, _)| error)?;
    }
    Ok(totals)
}
