use std::collections::BTreeMap;

#[tokio::test]
async fn orders_are_totalled_by_customer() {
    let servers = std::env::var("KAFKA_BOOTSTRAP_SERVERS").expect("milena up --env sets it");
    let totals = totals::total_orders(&servers, "orders", "totals-rust", 3).await.unwrap();
    let expected = [("ann", 12.5), ("bob", 5.0)].map(|(customer, total)| (customer.to_owned(), total));
    assert_eq!(totals, BTreeMap::from(expected));
}
