// Package totals is a service to be tested: it reads orders from one topic, and writes the total of each customer to
// another.
package totals

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Order is the value of a record.
type Order struct {
	Customer string  `json:"customer"`
	Amount   float64 `json:"amount"`
}

// TotalOrders reads count orders of source, writes one record a customer to target, and returns the totals.
func TotalOrders(ctx context.Context, bootstrapServers, source, target string, count int) (map[string]float64, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrapServers, ",")...),
		kgo.ConsumerGroup("totals-go"),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AllowAutoTopicCreation(),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	totals := map[string]float64{}
	for read := 0; read < count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			var order Order
			if err := json.Unmarshal(record.Value, &order); err != nil {
				return nil, err
			}
			totals[order.Customer] += order.Amount
			read++
		}
	}
	for customer, total := range totals {
		value, err := json.Marshal(map[string]float64{"total": total})
		if err != nil {
			return nil, err
		}
		record := &kgo.Record{Topic: target, Key: []byte(customer), Value: value}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return nil, err
		}
	}
	return totals, nil
}
