package totals

import (
	"context"
	"maps"
	"os"
	"testing"
	"time"
)

func TestOrdersAreTotalledByCustomer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	totals, err := TotalOrders(ctx, os.Getenv("KAFKA_BOOTSTRAP_SERVERS"), "orders", "totals-go", 3)
	if err != nil {
		t.Fatal(err)
	}
	if expected := map[string]float64{"ann": 12.5, "bob": 5}; !maps.Equal(totals, expected) {
		t.Errorf("found %v, expected %v", totals, expected)
	}
}
