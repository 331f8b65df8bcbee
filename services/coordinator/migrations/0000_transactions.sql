CREATE TABLE "Order_Attempt" (
	"ID" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "Order_Attempt_ID_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"Process" text NOT NULL,
	"TransactionID" text NOT NULL,
	"ReplayID" integer NOT NULL,
	"StepName" text NOT NULL,
	"Attempt" integer NOT NULL,
	"Outcome" text NOT NULL,
	"ResponseStatus" integer,
	"Error" text,
	"StartedAt" timestamp with time zone NOT NULL,
	"FinishedAt" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "Order_Header" (
	"Process" text NOT NULL,
	"TransactionID" text NOT NULL,
	"ReplayID" integer DEFAULT 0 NOT NULL,
	"Status" text DEFAULT 'Queued' NOT NULL,
	"StepName" text DEFAULT '' NOT NULL,
	"InitialData" jsonb NOT NULL,
	"Realm" text,
	"Version" integer DEFAULT 0 NOT NULL,
	"LeaseOwner" text,
	"LeaseUntil" timestamp with time zone,
	"StartedAt" timestamp with time zone,
	"Attempt" integer DEFAULT 0 NOT NULL,
	"NextAttemptAt" timestamp with time zone DEFAULT now(),
	"NextSweepAt" timestamp with time zone DEFAULT now() NOT NULL,
	"SweepCount" integer DEFAULT 0 NOT NULL,
	"WaitingFor" text,
	"LastError" text,
	"ErrorClass" text,
	"CreatedAt" timestamp with time zone DEFAULT now() NOT NULL,
	"UpdatedAt" timestamp with time zone DEFAULT now() NOT NULL,
	"CompletedAt" timestamp with time zone,
	CONSTRAINT "Order_Header_Process_TransactionID_ReplayID_pk" PRIMARY KEY("Process","TransactionID","ReplayID"),
	CONSTRAINT "Order_Header_Status" CHECK ("Status" in ('Queued', 'Running', 'Retrying', 'Waiting', 'Completed', 'Failed', 'Cancelled')),
	CONSTRAINT "Order_Header_numbers" CHECK ("ReplayID" >= 0 and "Version" >= 0 and "Attempt" >= 0 and "SweepCount" between 0 and 1000000),
	CONSTRAINT "Order_Header_times" CHECK (("LeaseUntil" is null or "LeaseUntil" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("StartedAt" is null or "StartedAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("NextAttemptAt" is null or "NextAttemptAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("NextSweepAt" is null or "NextSweepAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("CreatedAt" is null or "CreatedAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("UpdatedAt" is null or "UpdatedAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("CompletedAt" is null or "CompletedAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00'))
);
--> statement-breakpoint
CREATE TABLE "Order_Item" (
	"Process" text NOT NULL,
	"TransactionID" text NOT NULL,
	"ReplayID" integer NOT NULL,
	"StepName" text NOT NULL,
	"Status" text NOT NULL,
	"Attempt" integer DEFAULT 0 NOT NULL,
	"IdempotencyKey" text NOT NULL,
	"ResponseStatus" integer,
	"ResponseBody" text,
	"Data" jsonb,
	"Error" text,
	"StartedAt" timestamp with time zone,
	"FinishedAt" timestamp with time zone,
	CONSTRAINT "Order_Item_Process_TransactionID_ReplayID_StepName_pk" PRIMARY KEY("Process","TransactionID","ReplayID","StepName"),
	CONSTRAINT "Order_Item_Status" CHECK ("Status" in ('Running', 'Retrying', 'Waiting', 'InDoubt', 'Completed', 'Failed', 'Cancelled', 'Copied'))
);
--> statement-breakpoint
CREATE TABLE "Order_Process" (
	"Process" text PRIMARY KEY NOT NULL,
	"Paused" boolean DEFAULT false NOT NULL,
	"UpdatedAt" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE INDEX "Order_Attempt_run" ON "Order_Attempt" USING btree ("Process","TransactionID","ReplayID");--> statement-breakpoint
CREATE INDEX "Order_Header_due" ON "Order_Header" USING btree ("NextSweepAt") WHERE "Status" in ('Queued', 'Running', 'Retrying', 'Waiting');--> statement-breakpoint
CREATE INDEX "Order_Header_waiting" ON "Order_Header" USING btree ("WaitingFor") WHERE "Status" = 'Waiting';--> statement-breakpoint
CREATE INDEX "Order_Header_newest" ON "Order_Header" USING btree ("Process","CreatedAt","TransactionID","ReplayID");--> statement-breakpoint
CREATE INDEX "Order_Header_updated" ON "Order_Header" USING btree ("UpdatedAt");--> statement-breakpoint
CREATE INDEX "Order_Item_finished" ON "Order_Item" USING btree ("FinishedAt");