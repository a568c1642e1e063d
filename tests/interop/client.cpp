// A client of the interop tests on proton's C++ library. test_interop.py describes its commands and output.

#include <proton/codec/encoder.hpp>
#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/error_condition.hpp>
#include <proton/link.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver.hpp>
#include <proton/receiver_options.hpp>
#include <proton/sender.hpp>
#include <proton/sender_options.hpp>
#include <proton/source_options.hpp>
#include <proton/tracker.hpp>
#include <proton/transport.hpp>

#include <iostream>
#include <string>

namespace {

proton::binary body_of(int number, size_t size) {
    proton::binary body(size);
    for (size_t at = 0; at < size; ++at) body[at] = uint8_t((number + at) % 251);
    return body;
}

class Client : public proton::messaging_handler {
  public:
    explicit Client(const std::string& url) : url_(url) {}
    void on_container_start(proton::container& container) override { container.connect(url_); }
    void on_transport_error(proton::transport& transport) override { fail(transport.error().what()); }
    void on_connection_error(proton::connection& connection) override { fail(connection.error().what()); }
    void on_sender_error(proton::sender& sender) override { refused(sender); }
    void on_receiver_error(proton::receiver& receiver) override { refused(receiver); }
    int status = 0;

  protected:
    void done(proton::connection connection, const std::string& said) {
        std::cout << said << std::endl;
        connection.close();
    }
    void fail(const std::string& why) {
        std::cout << "failed: " << why << std::endl;
        status = 1;
    }

  private:
    void refused(proton::link link) { done(link.connection(), "refused: " + link.error().name()); }
    std::string url_;
};

class Send : public Client {
  public:
    Send(const std::string& url, const std::string& address, bool settled, int count, size_t size)
        : Client(url), address_(address), settled_(settled), count_(count), size_(size) {}

    void on_connection_open(proton::connection& connection) override {
        connection.open_sender(address_, proton::sender_options().delivery_mode(
                                             settled_ ? proton::delivery_mode::AT_MOST_ONCE
                                                      : proton::delivery_mode::AT_LEAST_ONCE));
    }
    void on_sendable(proton::sender& sender) override {
        for (; sender.credit() > 0 && sent_ < count_; ++sent_) {
            proton::message message(body_of(sent_, size_));
            message.subject(std::to_string(sent_));
            message.durable(true);
            sender.send(message);
        }
        if (settled_ && sent_ == count_) finish(sender.connection());
    }
    void on_tracker_accept(proton::tracker& tracker) override {
        if (++accepted_ == count_ && !settled_) finish(tracker.connection());
    }
    void on_tracker_reject(proton::tracker&) override { fail("rejected"); }

  private:
    void finish(proton::connection connection) {
        if (!finished_) done(connection, "sent " + std::to_string(count_));
        finished_ = true;
    }
    std::string address_;
    bool settled_, finished_ = false;
    int count_, sent_ = 0, accepted_ = 0;
    size_t size_;
};

class Receive : public Client {
  public:
    // outcomes: a letter for each message to receive
    Receive(const std::string& url, const std::string& address, bool settled, const std::string& outcomes, size_t size)
        : Client(url), address_(address), settled_(settled), outcomes_(outcomes), size_(size) {}

    void on_connection_open(proton::connection& connection) override {
        auto mode = settled_ ? proton::delivery_mode::AT_MOST_ONCE : proton::delivery_mode::AT_LEAST_ONCE;
        auto options = proton::receiver_options().delivery_mode(mode).auto_accept(false).credit_window(0);
        connection.open_receiver(address_, options).add_credit(int(outcomes_.size()));
    }
    void on_message(proton::delivery& delivery, proton::message& message) override {
        if (message.subject() != std::to_string(received_) ||
            proton::get<proton::binary>(message.body()) != body_of(received_, size_))
            fail("message " + std::to_string(received_) + " is not what was sent");
        char outcome = outcomes_[size_t(received_)];
        if (!settled_) {
            if (outcome == 'a') delivery.accept();
            if (outcome == 'x') delivery.reject();
            if (outcome == 'r') delivery.release();
            if (outcome == 'm') delivery.modify();
        } else if (!delivery.settled()) {
            fail("it is not settled");
        }
        if (++received_ == int(outcomes_.size())) done(delivery.connection(), "received " + std::to_string(received_));
    }

  private:
    std::string address_;
    bool settled_;
    std::string outcomes_;
    int received_ = 0;
    size_t size_;
};

class Ask : public Client {
  public:
    Ask(const std::string& url, const std::string& address, const std::string& question)
        : Client(url), address_(address), question_(question) {}

    void on_connection_open(proton::connection& connection) override {
        sender_ = connection.open_sender(address_);
        auto dynamic = proton::source_options().dynamic(true);
        connection.open_receiver("", proton::receiver_options().source(dynamic));
    }
    void on_receiver_open(proton::receiver& receiver) override {
        proton::message message(question_);
        message.reply_to(receiver.source().address());
        sender_.send(message);
    }
    void on_message(proton::delivery& delivery, proton::message& message) override {
        done(delivery.connection(), "answered " + proton::get<std::string>(message.body()));
    }

  private:
    std::string address_, question_;
    proton::sender sender_;
};

// Receives all available messages by draining its credit.
class Take : public Client {
  public:
    Take(const std::string& url, const std::string& address, const std::string& kind, const std::string& selector)
        : Client(url), address_(address), kind_(kind), selector_(selector) {}

    void on_connection_open(proton::connection& connection) override {
        proton::source_options source;
        proton::receiver_options options;
        options.credit_window(0);
        if (kind_ == "copy") source.distribution_mode(proton::source::COPY);
        if (kind_ == "durable") {
            options.name("subscription");
            source.durability_mode(proton::source::UNSETTLED_STATE).expiry_policy(proton::source::NEVER);
        }
        if (!selector_.empty()) {
            proton::value described;
            proton::codec::encoder(described) << proton::codec::start::described()
                                              << proton::symbol("apache.org:selector-filter:string") << selector_
                                              << proton::codec::finish();
            proton::source::filter_map filters;
            filters.put(proton::symbol("selector"), described);
            source.filters(filters);
        }
        connection.open_receiver(address_, options.source(source));
    }
    void on_receiver_open(proton::receiver& receiver) override {
        receiver.add_credit(100);
        receiver.drain();
    }
    void on_message(proton::delivery&, proton::message& message) override { said_ += " " + message.subject(); }
    void on_receiver_drain_finish(proton::receiver& receiver) override {
        if (kind_ == "durable") receiver.detach();
        done(receiver.connection(), said_);
    }

  private:
    std::string address_, kind_, selector_, said_ = "took";
};

// Decodes messages of a queue, encodes them again, and sends them to another queue.
class Echo : public Client {
  public:
    Echo(const std::string& url, const std::string& from, const std::string& to, int count)
        : Client(url), from_(from), to_(to), count_(count) {}

    void on_connection_open(proton::connection& connection) override {
        sender_ = connection.open_sender(to_);
        connection.open_receiver(from_);
    }
    void on_message(proton::delivery&, proton::message& message) override {
        proton::message made;
        made.durable(message.durable());
        made.subject(message.subject());
        made.properties() = message.properties();
        made.body() = message.body();
        sender_.send(made);
    }
    void on_tracker_accept(proton::tracker& tracker) override {
        if (++accepted_ == count_) done(tracker.connection(), "echoed " + std::to_string(count_));
    }

  private:
    std::string from_, to_;
    proton::sender sender_;
    int count_, accepted_ = 0;
};

int run(Client&& client) {
    proton::container(client, "interop").run();
    return client.status;
}

}  // namespace

int main(int argc, char** argv) {
    std::string url = argv[1], verb = argv[2], address = argv[3], first = argv[4];
    bool settled = argc > 5 && std::string(argv[5]) == "settled";
    size_t size = argc > 6 ? std::stoul(argv[6]) : 0;
    try {
        if (verb == "send") return run(Send(url, address, settled, std::stoi(first), size));
        if (verb == "receive") return run(Receive(url, address, settled, first, size));
        if (verb == "take") return run(Take(url, address, first, argc > 5 ? argv[5] : ""));
        if (verb == "echo") return run(Echo(url, address, first, std::stoi(argv[5])));
        if (verb == "ask") return run(Ask(url, address, first));
    } catch (const std::exception& error) {
        std::cout << "failed: " << error.what() << std::endl;
    }
    return 1;
}
