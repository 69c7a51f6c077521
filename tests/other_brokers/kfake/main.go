// Command kfake runs the fake cluster of franz-go and controls it: one JSON command per line of stdin, one JSON
// answer per line of stdout. It ends at the end of stdin, so that it never outlives the tests.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

type command struct {
	Do        string
	Topic     string
	Partition int32
	Count     int
	Node      int32
	Port      int
	Key       int16
	Code      int16
	Committed bool
}

type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

type record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       []byte   `json:"key"` // base64, or null
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp int64    `json:"timestamp_ms"`
}

type answer struct {
	Error   string   `json:"error,omitempty"`
	Servers []string `json:"servers,omitempty"`
	Node    int32    `json:"node"`
	Port    int      `json:"port"`
	Hits    int      `json:"hits"`
	Records []record `json:"records"`
}

type server struct {
	cluster *kfake.Cluster
	faults  []*kfake.FaultHandle
	dropped int
}

func main() {
	brokers := flag.Int("brokers", 3, "number of brokers")
	version := flag.String("version", "", "release of Apache Kafka whose API versions the cluster supports")
	flag.Parse()
	options := []kfake.Opt{kfake.NumBrokers(*brokers), kfake.WithLogger(kfake.BasicLogger(os.Stderr, kfake.LogLevelWarn))}
	if *version != "" {
		versions := kversion.FromString(*version)
		if versions == nil {
			log.Fatalf("unknown release %q", *version)
		}
		options = append(options, kfake.MaxVersions(versions))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	s := &server{cluster: cluster}
	out := json.NewEncoder(os.Stdout)
	_ = out.Encode(answer{Servers: cluster.ListenAddrs()})
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var c command
		reply, err := answer{}, json.Unmarshal(in.Bytes(), &c)
		if err == nil {
			reply, err = s.run(c)
		}
		if err != nil {
			reply.Error = err.Error()
		}
		_ = out.Encode(reply)
	}
}

func (s *server) run(c command) (reply answer, err error) {
	switch c.Do {
	case "create":
		err = s.cluster.CreateTopic(c.Topic, c.Partition, nil)
	case "delete":
		err = s.cluster.DeleteTopic(c.Topic)
	case "leader":
		reply.Node = s.cluster.LeaderFor(c.Topic, c.Partition)
	case "move":
		err = s.cluster.MoveTopicPartition(c.Topic, c.Partition, c.Node)
	case "shuffle":
		s.cluster.ShufflePartitionLeaders()
	case "rehash": // other brokers become the coordinators
		s.cluster.RehashCoordinators()
	case "add":
		reply.Node, reply.Port, err = s.cluster.AddNode(c.Node, c.Port)
	case "remove":
		err = s.cluster.RemoveNode(c.Node)
	case "fail": // the next Count requests of the key, with the code
		code, ok := kerr.ErrorForCode(c.Code).(*kerr.Error)
		if !ok {
			return reply, fmt.Errorf("unknown error code %d", c.Code)
		}
		s.faults = append(s.faults, s.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Key(c.Key)}, Err: code, Count: c.Count}))
	case "drop": // the connections of the next Count requests of the key
		left := c.Count
		s.cluster.ControlKey(c.Key, func(kmsg.Request) (kmsg.Response, error, bool) {
			s.dropped++
			s.cluster.KeepControl()
			if left--; left == 0 {
				s.cluster.DropControl()
			}
			return nil, errors.New("dropped"), true
		})
	case "hits":
		reply.Hits = s.dropped
		for _, each := range s.faults {
			reply.Hits += each.Hits()
		}
	case "read":
		reply.Records, err = s.read(c)
	default:
		err = fmt.Errorf("unknown command %q", c.Do)
	}
	return reply, err
}

// read returns Count records of a topic, and fails unless Count records and no other arrive.
func (s *server) read(c command) ([]record, error) {
	isolation := kgo.ReadUncommitted()
	if c.Committed {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(s.cluster.ListenAddrs()...),
		kgo.ConsumeTopics(c.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(isolation),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	records := []record{}
	for {
		wait := ctx
		if len(records) >= c.Count { // one more look for records that must not be there
			var stop context.CancelFunc
			wait, stop = context.WithTimeout(ctx, 300*time.Millisecond)
			defer stop()
		}
		fetches := client.PollFetches(wait)
		if fetches.NumRecords() == 0 && wait.Err() != nil {
			break
		}
		for _, each := range fetches.Errors() {
			if wait.Err() == nil {
				return nil, each.Err
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			one := record{r.Partition, r.Offset, r.Key, r.Value, []header{}, r.Timestamp.UnixMilli()}
			for _, h := range r.Headers {
				one.Headers = append(one.Headers, header{h.Key, h.Value})
			}
			records = append(records, one)
		})
	}
	if len(records) != c.Count {
		return records, fmt.Errorf("%d records, not %d", len(records), c.Count)
	}
	return records, nil
}
